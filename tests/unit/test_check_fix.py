"""`recipe check --fix`: exact edits of lines, comments and order kept; nothing where no fix is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cli.fixing import corrected
from builder.cli.main import run
from builder.model.finding import Edit

FAULTY = """\
nmae: demo  # nmae is the name
chanels: [conda-forge]
dependencies:
  - python=3.12
  - numpy=>1.26   # a comment that stays
  - pandas: 2.2
  - "scipy=1.11"
  - git+https://example.org/x.git
  - pip:
    - rich=13.7
    - --extra-index-urls https://example.org/simple
container:
  gpus: [cpu]
"""
RIGHT = """\
name: demo  # nmae is the name
channels: [conda-forge]
dependencies:
  - python=3.12
  - numpy>=1.26   # a comment that stays
  - pandas=2.2
  - "scipy=1.11"
  - pip:
    - rich==13.7
    - --extra-index-url https://example.org/simple
    - git+https://example.org/x.git
container:
  gpu: [cpu]
"""


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("environment.yml")


def test_every_exact_fault_is_corrected_in_its_line(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.write_text(FAULTY)
    assert run(["check", "--fix", "local", str(env)]) == 0
    out, err = capsys.readouterr()
    assert env.read_text() == RIGHT
    assert out.startswith("--- a/environment.yml\n+++ b/environment.yml\n@@")
    assert "-nmae: demo  # nmae is the name\n" in out
    assert err == "8 lines corrected\n"
    assert [path.name for path in env.absolute().parent.iterdir()] == ["environment.yml"]
    assert run(["check", "local", str(env)]) == 0


@pytest.mark.parametrize("words", [["--fix", "--diff"], ["--fix", "-n"], ["--diff"]])
def test_diff_prints_and_writes_nothing(words: list[str], env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.write_text(FAULTY)
    assert run(["check", *words, "local", str(env)]) == 0
    assert "+name: demo" in capsys.readouterr().out
    assert env.read_text() == FAULTY


def test_without_an_exact_fix_it_refuses(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.write_text("name: demo\ndependencies:\n  - 3.12\n")
    assert run(["check", "--fix", "local", str(env)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "error: no finding has a fix that is exact" in err
    assert env.read_text().endswith("  - 3.12\n")


def test_what_the_resolver_found_is_corrected_too(env: Path) -> None:
    env.write_text("name: demo\ndependencies:\n  - python=3.12\n  - torch=2.8.0\n  - pip:\n    - numpy\n")
    assert run(["check", "--fix", "local", str(env)]) == 0
    assert "  - pytorch=2.8.0\n" in env.read_text()
    env.write_text("name: demo\ndependencies:\n  - python=3.12\n  - pip:\n    - torch==2.8.0+cu128\n")
    assert run(["check", "--fix", "lumi-g", str(env)]) == 0
    assert "    - torch==2.8.0\n" in env.read_text()


def test_a_file_that_is_right_stays(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.write_text("name: demo\ndependencies:\n  - python=3.12\n  - numpy=1.26\n")
    run(["check", "local", str(env)])
    capsys.readouterr()
    assert run(["check", "--fix", "local", str(env)]) in (0, 2)
    assert capsys.readouterr().out == ""
    assert env.read_text().endswith("numpy=1.26\n")


@pytest.mark.parametrize(("line", "old"), [("- a a", "a"), ("- abc", "b"), ("- x  # a", "a"), ("- a-b", "a")])
def test_words_that_do_not_stand_there_once_are_left(line: str, old: str) -> None:
    assert corrected(line, [Edit(file="x", line=1, old=old, new="z")]) == (line, 0)


def test_line_ends_and_a_missing_last_one_are_kept() -> None:
    edit = Edit(file="x", line=2, old="b", new="c")
    assert corrected("a\r\nb\r\n", [edit]) == ("a\r\nc\r\n", 1)
    assert corrected("a\nb", [edit]) == ("a\nc", 1)
    assert corrected("a\n", [edit]) == ("a\n", 0)
