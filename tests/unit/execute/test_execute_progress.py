"""What the user sees while a plan is executed."""

from __future__ import annotations

import io

import pytest
from support.rows import rows

from builder.execute import progress as module
from builder.execute.progress import (
    LiveProgress,
    PlainProgress,
    Progress,
    QuietProgress,
    choose_multi_progress,
    choose_progress,
)
from builder.model.plan import Step
from builder.model.report import StepResult
from builder.model.text import format_clock

STEP = Step(name="build", kind="build", why="build the image", script="1.sh")


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def play(progress: Progress) -> None:
    progress.begin(title="demo.local.apptainer: x.sif", total=1)
    progress.begin_step(STEP, number=1)
    progress.show_line("Collecting torch " + "x" * 500)
    progress.refresh()
    progress.end_step(StepResult(name="build", status="ok", seconds=4.21))
    progress.end_step(StepResult(name="smoke", status="skipped", seconds=0))
    progress.note("[bold]a note[/bold]")
    progress.end()


def test_plain_lines() -> None:
    stream = io.StringIO()
    play(PlainProgress(stream))
    assert stream.getvalue().splitlines() == [
        "demo.local.apptainer: x.sif",
        "[1/1] build: build the image",
        "[1/1] build: done after 4.2 s",
        "smoke: skipped",
        "[bold]a note[/bold]",
    ]


def test_verbose_shows_the_engine() -> None:
    stream = io.StringIO()
    play(PlainProgress(stream, verbose=True))
    assert "  Collecting torch" in stream.getvalue()


def test_what_says_nothing_is_not_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.begin_step(STEP, number=1)
    for text in (
        "INFO:    Creating SIF file...",
        "INFO:    Non-gzip squashfs compression might not work with some installations",
        "INFO:    To see mksquashfs output with progress bar enable verbose logging",
        "WARNING: While bind mounting '/tmp/a b:/mnt': destination is already in the mount point list",
        "  ",
    ):
        progress.show_line(text)
    now[0] += 31
    progress.refresh()
    assert stream.getvalue().splitlines()[-1] == "[1/0] build: 31.0 s: INFO:    Creating SIF file..."


def test_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.begin(title="t", total=2)
    progress.begin_step(STEP, number=2)
    progress.show_line("Installing")
    for _ in range(100):
        now[0] += 1
        progress.refresh()
    beats = [line for line in stream.getvalue().splitlines() if "Installing" in line]
    assert beats == [f"[2/2] build: {text}: Installing" for text in ("30.0 s", "1 min 00 s", "1 min 30 s")]


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    play(QuietProgress())
    assert capsys.readouterr() == ("", "")


def test_live_scrolls_what_has_ended_and_keeps_to_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(module, "REFRESH", 0.0)
    stream = Terminal()
    play(LiveProgress(stream))
    text = stream.getvalue()
    assert "done after 4.2 s" in text
    assert "[bold]a note[/bold]" in text
    assert "Collecting" in text
    assert "x" * 41 not in text


@rows(
    ("stream", "environment", "extra", "expected"),
    [
        (Terminal(), {"TERM": "xterm"}, {}, LiveProgress),
        (Terminal(), {"TERM": "xterm"}, {"quiet": True}, QuietProgress),
        (Terminal(), {"TERM": "xterm"}, {"color": False}, PlainProgress),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, {}, PlainProgress),
        (Terminal(), {"TERM": "dumb"}, {}, PlainProgress),
        (Terminal(), {}, {}, PlainProgress),
        (io.StringIO(), {"TERM": "xterm"}, {}, PlainProgress),
    ],
)
def test_choose(stream: io.StringIO, environment: dict[str, str], extra: dict[str, bool], expected: type) -> None:
    assert type(choose_progress(stream, environment=environment, **extra)) is expected


def test_no_terminal_codes_without_a_terminal() -> None:
    stream = io.StringIO()
    play(choose_progress(stream, environment={"TERM": "xterm"}, verbose=True))
    assert "\x1b" not in stream.getvalue()


@rows(
    ("seconds", "text"),
    [(0, "0.0 s"), (4.25, "4.2 s"), (59.9, "59.9 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (3720, "1 h 02 min")],
)
def test_duration(seconds: float, text: str) -> None:
    assert format_clock(seconds) == text


def test_a_long_line_is_wrapped_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = "nothing to do: demo.sif was built from this and passed its smoke test; --force builds it again"
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        choose_multi_progress(stream, width=8, environment={}, quiet=False, verbose=False, color=False).get_progress(
            "demo"
        ).note(text)
    assert pipe.getvalue() == f"demo      {text}\n"
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert all(line.startswith("demo      ") for line in lines)
    assert " ".join(line.removeprefix("demo").strip() for line in lines) == text
