"""Former names of options and commands: they work, and no help shows them."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from builder.cli.main import run

RECIPE = "name: x\ndependencies:\n  - pip: [six==1.16.0]\n"
NAMES = [
    ("build", ("build", "local", "x.yml", "--offline", "{}"), "--verify", "--reproduce", "--reproduce with --offline"),
    ("inspect", ("inspect", "x.sif", "{}"), "--verify", "--integrity", "it is not a regular file"),
    ("cache", ("cache", "{}"), "verify", "check", "there is no cache yet"),
]


def recipe(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(arguments))
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(("words", "former", "name", "said"), [row[1:] for row in NAMES])
def test_a_former_name_does_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], former: str, name: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECIPE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "x.yml").write_text(RECIPE, encoding="utf-8")
    (tmp_path / "x.sif").mkdir()
    with_former = recipe(*(word.format(former) for word in words))
    assert with_former == recipe(*(word.format(name) for word in words))
    assert said in with_former[2]


@pytest.mark.parametrize(("command", "former", "name"), [(row[0], *row[2:4]) for row in NAMES])
def test_the_help_shows_the_new_name_only(command: str, former: str, name: str) -> None:
    code, out, _ = recipe(command, "--help")
    assert (code, former in out.split(), name in out.split()) == (0, False, True)


def test_a_hint_names_no_former_name() -> None:
    assert (
        recipe("cache", "foo")[2].splitlines()[1] == "  fix: its commands: ls, check, prune; see `recipe cache --help`"
    )
