"""What a shell is answered that asks what a word can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.check_formats import list_codes
from builder.cli.main import COMMANDS, run
from builder.parse.site import find_site_files


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("env.yml", "r.txt", "notes.md", "x.sif", "-o.yml", ".hidden.yml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_RECIPE_COMPLETE", "bash_complete")


def ask(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the last word of a line can be; `file` is the shell's own completion."""
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(run())
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    return [item.removeprefix("plain,") for item in out.split()]


SITES = list(find_site_files(None))
FILE = ["file,"]


@rows(
    ("line", "expected"),
    [
        ("recipe ", list(COMMANDS)),
        ("recipe che", ["check"]),
        ("recipe check ", [*SITES, "env.yml", "r.txt"]),
        ("recipe build lumi-", ["lumi-c", "lumi-g"]),
        ("recipe build lumi-g e", ["env.yml"]),
        ("recipe build lumi-g lumi", ["lumi-c"]),  # not the one that is there
        ("recipe check ../e", ["file,../e"]),
        ("recipe build --backend ", ["apptainer", "cotainr", "docker", "layers", "tykky"]),
        ("recipe build env.yml dawn --backend ", ["apptainer", "layers"]),
        ("recipe build lumi-g --gpu-vis", ["--gpu-visibility"]),
        ("recipe build lumi-g --gpu-visibility n", ["node"]),
        ("recipe check --ignore torch-", [code for code in sorted(list_codes()) if code.startswith("torch-")]),
        ("recipe explain glib", ["glibc"]),
        ("recipe run ", [*SITES, "x.sif"]),
        ("recipe run local ", ["x.sif"]),
        ("recipe run local x.sif -- py", ["file,py"]),
        ("recipe inspect --site daw", ["dawn"]),
        ("recipe init mnist-", ["mnist-local"]),
        ("recipe cache p", ["prune"]),
        ("recipe completion ", ["bash", "zsh", "fish"]),
        ("recipe nonsense e", []),
        ("recipe check 'lum", ["lumi-c", "lumi-g"]),
    ],
)
def test_words(
    line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(line, monkeypatch, capsys) == expected


def test_a_faulty_variable_is_no_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RECIPE_SITES", "/no/such/folder")
    monkeypatch.setenv("RECIPE_TEMPDIR", "x")
    assert ask("recipe che", monkeypatch, capsys) == ["check"]
    ask("recipe check lumi", monkeypatch, capsys)


def test_a_word_that_is_no_text_is_no_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("COMP_WORDS", os.fsdecode(b"recipe check \xff"))
    assert run() == 0
    monkeypatch.delenv("COMP_WORDS")
    assert run() == 0
    assert "Traceback" not in capsys.readouterr().err


def test_the_login_shell_is_the_default(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("_RECIPE_COMPLETE")
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert run(["completion"]) == 0
    default = capsys.readouterr().out
    assert run(["completion", "fish"]) == 0
    assert capsys.readouterr().out == default


@pytest.mark.parametrize("words", [["csh"], ["Bash"], []])
def test_another_shell_is_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("_RECIPE_COMPLETE")
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert run(["completion", *words]) == 2
    assert "`recipe completion bash`" in capsys.readouterr().err
