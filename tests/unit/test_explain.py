"""recipe explain: the page of every code as text and as JSON, and the nearest codes of a wrong one."""

from __future__ import annotations

import json

import pytest
from support.rows import rows

from builder.cli.check_formats import list_codes, read_page
from builder.cli.explain import find_class, format_page, list_classed_codes
from builder.cli.main import run

Capture = pytest.CaptureFixture[str]


@rows("code", list_codes())
def test_the_page_of_a_code_is_printed(code: str, capsys: Capture) -> None:
    assert run(["explain", code]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[0], err) == (code, "")
    assert "```" not in out
    assert "](" not in out
    words = [word for word in read_page(code).split() if not word.startswith(("#", "```")) and "](" not in word]
    printed = out.split()
    assert [word for word in words if word.strip("[]") not in printed and word not in printed] == []


def test_a_paragraph_is_one_line_and_code_is_indented() -> None:
    page = "# code\n\nFirst line\nand [more](x.md).\n- an item\n\n```console\n$ recipe check\n\n  fix: it\n```\n"
    shown = ["code", "", "First line and more.", "- an item", "", "    $ recipe check", "", "      fix: it"]
    assert [*format_page(page)][: len(shown)] == shown


@rows("word", ["torch-build", "TORCH-BUILD", "error[torch-build]", "[torch-build]", "torch-build:"])
def test_a_code_is_found_as_it_stands_in_a_message(word: str, capsys: Capture) -> None:
    assert run(["explain", word]) == 0
    assert capsys.readouterr().out.startswith("torch-build\n")


def test_json_has_the_level_the_title_and_the_page(capsys: Capture) -> None:
    assert run(["explain", "glibc", "--format", "json"]) == 0
    page = read_page("glibc")
    found = json.loads(capsys.readouterr().out)
    title = "The base image's C library is too old for the wheels."
    assert found == {"schema": 1, "code": "glibc", "level": "error", "title": title, "page": page}


@rows(
    ("word", "fix"),
    [
        ("torch-bild", "did you mean `recipe explain torch-build`"),
        ("mpi", "`recipe explain mpi-launcher` or `recipe explain mpi-missing` or `recipe explain mpi-own` or `recipe"),
        ("glib", "did you mean `recipe explain glibc`"),
        ("qqqq", "copy the word in brackets of a finding: error[torch-build]"),
        ("../README", "copy the word in brackets"),
        ("README", "did you mean `recipe explain "),
    ],
)
def test_a_wrong_code_has_the_nearest_ones(word: str, fix: str, capsys: Capture) -> None:
    assert run(["explain", word]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"there is no code '{word}'" in err
    assert fix in err


@rows("code", list_classed_codes())
def test_the_class_of_a_code_is_printed(code: str, capsys: Capture) -> None:
    assert run(["explain", code]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[:3], err) == ([code, "", find_class(code)], "")


@rows("code", {find_class(code): code for code in list_classed_codes()}.values())
def test_json_has_the_class_of_a_code_without_a_page(code: str, capsys: Capture) -> None:
    assert run(["explain", code, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["code"], found["level"], found["title"]) == (code, None, find_class(code))


@rows("columns", [80, 120])
@rows("code", list_codes())
def test_prose_is_flush_and_lists_hang(code: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    monkeypatch.setattr("builder.cli.output.get_screen_width", lambda **_: columns)
    monkeypatch.setattr("builder.cli.output.click.echo", lambda text, **_: printed.extend(text.split("\n")))
    assert run(["explain", code]) == 0
    code_lines = [f"    {line}".rstrip() for line in _fenced(read_page(code))]
    assert [line for line in code_lines if len(line) <= columns and line not in printed] == []
    item = False
    for line in printed:
        assert len(line) <= columns or len(line.split()) == 1, line
        item = line.startswith(("- ", "| ")) or (item and line.startswith("  ") and not line.startswith("   "))
        assert not line.startswith(" ") or item or line.startswith("    "), line
    first = read_page(code).splitlines()[2]
    assert len(first) <= columns or printed[3][:1].strip(), printed[:4]


def _fenced(page: str) -> list[str]:
    """The lines of a page that are code."""
    lines, inside = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside:
            lines.append(line)
    return lines
