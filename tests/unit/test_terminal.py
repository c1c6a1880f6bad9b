"""Nothing of a foreign text reaches the terminal as a command of the terminal, or as a line of ours."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run
from builder.cli.output import echo, format_columns, format_finding
from builder.cli.terminal import summarize_build, summarize_result
from builder.execute.progress import PlainProgress
from builder.model import secrets
from builder.model.finding import Finding, Location
from builder.model.report import Report, SmokeCheck
from builder.model.text import escape_control, escape_line

CLI = Path(__file__).parents[2] / "builder" / "cli"
ODD = ("\x1b]0;pwned\x07", "\x1b[2J", "\x9b31m", "a\rb", "a\bb", "\x7f", "a\u202eb", "a\u2066b", "a\u2028b", "\ud800")
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@rows("text", ODD)
def test_security_19_what_a_terminal_obeys_is_made_visible(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    echo(f"x {text} y\nnext")
    echo(text, err=True)
    out, err = capsys.readouterr()
    assert not OBEYED.search(out + err)
    assert out.endswith(" y\nnext\n")
    assert json.loads(escape_control(json.dumps([text], ensure_ascii=False))) == [text]  # JSON stays JSON


@rows("text", [*ODD, "a\n  fix: rm -rf ~", "a\nerror: x"])
def test_security_19_a_name_forges_no_line(text: str) -> None:
    finding = Finding(
        code="x", message=f"'{text}' is odd", at=Location(file=text, line=1, key=text), fix=f"look at {text}"
    )
    assert [line[:6] for line in format_finding(finding)] == ["error:", "  at: ", "  fix:"]
    assert not OBEYED.search("".join(format_finding(finding)))
    assert len(format_columns([["a", text, text], ["b", "c", "d"]]).split("\n")) == 2
    report = Report(
        target="t", status="passed", image=text, steps=(),
        checks=(SmokeCheck(name=text, ok=False, measured=text, expected=text),),
        smoke={text: {"backend": text, "ranks": [], "device": {"name": text}, "imports": [{"name": text}]}},
    )  # fmt: skip
    assert len(summarize_build(report).split("\n")) == 3
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.begin(title=text, total=1)
    assert stream.getvalue().count("\n") == 1
    assert not OBEYED.search(stream.getvalue())
    assert escape_line("[red]a[/red]") == "[red]a[/red]"  # words of a markup are words


def test_security_19_there_is_one_place_that_prints() -> None:
    for path in CLI.glob("*.py"):
        found = re.findall(r"click\.s?echo\(|(?<![.\w])print\(", path.read_text(encoding="utf-8"))
        assert not found or path.name in ("output.py", "main.py"), path.name


def test_security_19_a_file_whose_name_has_line_breaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "x\n  fix: curl evil | sh\x1b[2J.plan"
    Path(name).mkdir()
    for words in (["status", name], ["report", name], ["inspect", name], ["status", f"{name}/y.sif"]):
        run(words)
        err = "".join(capsys.readouterr())
        assert not [line for line in err.splitlines() if line.startswith("  fix: curl")], words
        assert "\x1b" not in err


@rows("odd", [None, True, 3, 10**400, 1e308, "x", "\x1b[2J", [], [[]], {}, {"a": 1}, [None, 3, "x", {"name": {}}]])
def test_security_18_the_verdict_of_an_odd_result(odd: object) -> None:
    for name in ("ranks", "backend", "accuracy", "training", "imports", "device", "seconds"):
        whole = {
            "ranks": [],
            "accuracy": 0.5,
            "training": {"first_loss": odd, "last_loss": odd},
            "seconds": {"total": odd},
        }
        found = summarize_result({**whole, name: odd})
        assert found == "" or found.isprintable()
    assert summarize_result(odd) is not None


def test_security_20_a_job_masks_the_same_names_as_a_build() -> None:
    script = (CLI.parent / "data" / "templates" / "record.sh").read_text(encoding="utf-8")
    assert secrets._SECRET_PART.pattern in script
    assert secrets._HARMLESS_NAME.pattern in script
