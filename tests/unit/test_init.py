"""recipe init: what it writes, and what it does not replace."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cli.main import run

SIF = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\0"


def test_a_name_of_another_format_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for example, name, right in (("mnist", "a.txt", "a.yml"), ("finetune", "a.yml", "a.txt"), ("mnist", "a", "a.yml")):
        assert run(["init", example, "-o", name]) == 2
        assert f"fix: `recipe init {example} -o {right}`" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.yml", "link.yml"])
def test_force_replaces_environment_files_only(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yml").write_bytes(SIF)
    (tmp_path / "link.yml").symlink_to("x.yml")
    assert run(["init", "-f", "-o", name]) == 2
    assert "is not an environment file: it is never replaced" in capsys.readouterr().err
    assert (tmp_path / "x.yml").read_bytes() == SIF
    (tmp_path / "env.yml").write_text("name: x\ndependencies: [python=3.12]\n")
    assert run(["init", "-f", "-o", "env.yml"]) == 0


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("jax", "`recipe init mnist -o jax.yml`, and write jax in the place of torch and torchvision in it"),
        ("pandas", "`recipe init finetune` or `recipe init plots` writes a file with it"),
        ("xarray", "`recipe init climate` writes a file with it"),
        ("zzz", "`recipe init mnist`"),
    ],
)
def test_an_unknown_example_is_judged_as_a_package(name: str, fix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", name]) == 2
    assert f"fix: {fix}; examples: climate, finetune, " in capsys.readouterr().err
