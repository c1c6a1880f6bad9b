"""The fix for an image that does not exist builds it only from the environment file whose image has this name."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from support.rows import rows
from support.small_images import SIF

from builder.cli.main import run

TEXT = "name: {name}\ndependencies: [python=3.12]\n"
FILES = {"cupy1.yml": "cupy1", "b.yml": "Big.Net", "faulty.yml": "[", "mnist.yml": "mnist"}
LINES = ("run {} true", "run local {} -- true", "smoke {}", "smoke local {}", "inspect {}", "diff {} x.sif", "diff {}")


@rows(
    ("image", "here", "fix"),
    [
        ("g2-local.sif", (), "`recipe build local ENV -o g2-local.sif` builds it from the environment file ENV"),
        ("g2-mn5.sif", (), "`recipe build mn5 ENV -o g2-mn5.sif` builds it from the environment file ENV"),
        ("local.sif", (), "`recipe build local ENV -o local.sif` builds it from the environment file ENV"),
        ("mnist-lumi-g.sif", (), "`recipe build lumi-g mnist.yml -o mnist-lumi-g.sif` builds it"),
        ("big-net-mn5.sif", (), "`recipe build mn5 b.yml -o big-net-mn5.sif` builds it"),
        ("b.sif", (), "`recipe build local b.yml -o b.sif` builds it"),
        ("g2-local.sif", ("kept.sif",), "there is kept.sif: `recipe "),
        ("g2-local.sif", ("g3-local.sif",), "did you mean 'g3-local.sif'?"),
    ],
)
def test_a_build_is_of_the_file_with_that_image(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    image: str,
    here: tuple[str, ...],
    fix: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, name in FILES.items():
        Path(file).write_text(TEXT.format(name=name))
    for name in here:
        Path(name).write_bytes(SIF)
    for line in LINES:
        assert run(shlex.split(line.format(image))) == 2
        shown = capsys.readouterr().err
        if here and line.startswith("diff"):
            continue  # two sides: another image may be the other one
        assert fix in shown, (line, shown)
        assert "cupy1" not in shown, (line, shown)


@rows(
    ("line", "near"),
    [
        ("diff mpi.sif mpi2.lock", "mpi2.lock.yml"),
        ("check local demo", "demo.yml"),
        ("inspect whole", "whole.sif"),
        ("lock local demo.yaml", "demo.yml"),
    ],
)
def test_a_name_without_its_last_suffix_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, near: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mpi.lock.yml", "mpi2.lock.yml", "demo.yml"):
        Path(name).write_text(TEXT.format(name="demo"))
    for name in ("whole.sif", "demo.sif"):
        Path(name).write_bytes(SIF)
    assert run(line.split()) == 2
    assert near in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run local x.sif --account=p1 -- true", "smoke local x.sif --account=p1"])
def test_an_account_is_refused_where_there_are_no_jobs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.sif").write_bytes(SIF)
    assert run(command.split()) == 2
    assert "--account is for jobs, and 'local' has no batch system" in capsys.readouterr().err
