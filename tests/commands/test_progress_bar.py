"""The bar of a build on a terminal: bytes and time left, where a program reports them; a pipe gets lines."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from builder.execute.progress import Bar
from builder.model.plan import Plan, PlanFile, Step, to_json
from builder.model.text import format_bytes

REPORTS = """
shown=0
tell() { # and wait until it is seen
    printf '{"event": "progress", "what": "%s", "done": %s, "total": %s}\\n' "$@" >>"$RECIPE_EVENTS"
    shown=$((shown + 1))
    until [ -e "seen-$shown" ]; do sleep 0.05; done
}
tell 'writing the image' 1000000000 4000000000
tell 'writing the image' 2000000000 4000000000
tell 'packing \\u001b[31m base' 34000000 0
echo image >image.sif
"""
BUILD = """
import os, sys
from pathlib import Path
from builder.execute.plan_executor import execute
from builder.execute.build_options import ExecutionOptions
from builder.execute.progress import choose_progress
from builder.model.plan import from_json

folder = Path(sys.argv[1])
plan = from_json((folder / "plan.json").read_bytes())
progress = choose_progress(sys.stderr, environment=os.environ, quiet=sys.argv[2] == "quiet")
options = ExecutionOptions(environment=dict(os.environ))
print(execute(plan, folder=folder, output=folder.parent / "x.sif", options=options, progress=progress).status)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A plan folder whose step reports how far it is."""
    place = tmp_path / "x.plan"
    place.mkdir()
    step = Step(name="build", kind="build", why="make it", script="build.sh", produces=("image.sif",))
    plan = Plan(
        target="demo.local.layers", recipe="demo", site="local", backend="layers", vendor="cpu", image="image.sif",
        image_kind="sif", base="b", steps=(step,), files=(PlanFile(path="build.sh", text=REPORTS),),
    )  # fmt: skip
    (place / "plan.json").write_text(to_json(plan))
    (place / "build.sh").write_text(REPORTS)
    return place


def environment(folder: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "TERM": "xterm", "COLUMNS": "140", "LINES": "24", "TMPDIR": str(folder.parent)}


CLOCK = r"\d+(?:\.\d s| min \d\d s)"
SEEN = (b"25%  1.00 GB", b"50%  2.00 GB", b"base  34 MB")


def see(folder: Path, said: bytes = b"".join(SEEN)) -> None:
    """Let the step go on after what was said."""
    for number, text in enumerate(SEEN, 1):
        if text in said:
            (folder / f"seen-{number}").touch()


def on_a_terminal(folder: Path, how: str) -> str:
    """What a terminal of 140 columns gets."""
    if how == "quiet":
        see(folder)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", BUILD, str(folder), how]
    child = subprocess.Popen(command, env=environment(folder), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        said += data
        see(folder, said)
    os.close(ours)
    assert child.wait() == 0, said
    return said.decode()


def test_a_terminal_shows_bytes_and_the_time_left(folder: Path) -> None:
    said = on_a_terminal(folder, "loud")
    assert re.search(rf"\[1/1\] build  {CLOCK}  writing the image  \[#{{5}}\.{{15}}\] 25%  1\.00 GB of 4\.00 GB", said)
    assert re.search(rf"\[#{{10}}\.{{10}}\] 50%  2\.00 GB of 4\.00 GB  {CLOCK} left", said)
    assert re.search(r"packing .* base  34 MB", said)
    assert "\x1b[31m base" not in said  # what a program reports moves no cursor
    assert "[1/1] build: done after" in said


def test_with_quiet_a_terminal_shows_nothing(folder: Path) -> None:
    assert on_a_terminal(folder, "quiet").split() == ["passed"]


def test_a_pipe_gets_the_lines_that_it_always_got(folder: Path) -> None:
    see(folder)
    command = [sys.executable, "-c", BUILD, str(folder), "loud"]
    done = subprocess.run(command, env=environment(folder), capture_output=True, text=True, check=True)
    assert re.sub(r"\d+\.\d s", "N s", done.stderr).splitlines()[:3] == [
        f"demo.local.layers: {folder.parent / 'x.sif'}",
        "[1/1] build: make it",
        "[1/1] build: done after N s",
    ]


def test_what_is_complete_is_not_shown_any_more() -> None:
    bar = Bar()
    bar.update("copy", done=5, total=10, now=1.0)
    assert bar.format_line(1.0) == "copy  [##########..........] 50%  5 B of 10 B"
    bar.update("copy", done=10, total=10, now=2.0)
    assert bar.format_line(2.0) == ""
    bar.update("copy", done=30, total=10, now=2.0)  # a total that was too small
    assert bar.format_line(2.0) == ""
    bar.update("packing", done=30, total=0, now=3.0)
    assert (bar.format_line(4.0), bar.format_line(9.0)) == (
        "packing  30 B",
        "",
    )  # the program has gone on to something else


def test_a_bar_has_the_columns_that_its_numbers_leave() -> None:
    bar = Bar()
    bar.update("copy", done=0, total=10, now=1.0)
    bar.update("copy", done=5, total=10, now=2.0)
    assert bar.format_line(2.0, width=45) == "copy  [####....] 50%  5 B of 10 B  1.0 s left"
    assert bar.format_line(2.0, width=40) == "copy  50%  5 B of 10 B  1.0 s left"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (34_500_000, "34 MB"), (1_250_000_000, "1.25 GB")]
)
def test_bytes_as_people_say_them(count: int, text: str) -> None:
    assert format_bytes(count) == text
