"""Files of many thousand packages: the work for each line does not grow with the number of lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cli.inputs import make_context
from builder.compile.backends import check_backend
from builder.model.recipe import PipRequirement
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.pipeline.resolution import resolve_recipe
from builder.resolve.checks import spelling

COUNT = 400


def test_requirements_are_not_compared_with_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.txt").write_text("".join(f"pkg{number}==1.{number}\n" for number in range(COUNT)))
    recipe = load_recipe(tmp_path / "x.txt")
    compared: list[object] = []
    monkeypatch.setattr(PipRequirement, "__eq__", lambda one, other: bool(compared.append(one)) or one is other)
    check_backend(resolve_recipe(load_site("lumi-g"), recipe, context=make_context()))
    assert len(compared) < COUNT


def test_a_name_is_compared_with_few_known_names(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(spelling, "_is_one_slip", lambda _, other: bool(compared.append(other)))
    for number in range(COUNT):
        assert spelling._find_meant(f"pkg{number}-of-mine") == ""
    assert len(compared) < 30 * COUNT


@pytest.mark.parametrize(("word", "meant"), [("nunpy", "numpy"), ("pandsa", "pandas"), ("scipyy", ""), ("nupy", "")])
def test_a_slip_is_found_among_the_known_names(word: str, meant: str) -> None:
    every = sorted(name for name in spelling._collect_known() if len(name) >= spelling.MIN_LENGTH)
    slow = next((name for name in every if len(word) >= 5 and spelling._is_one_slip(word, name)), "")
    assert spelling._find_meant(word) == slow == meant
