"""Lines and logs out of a stream of bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.rows import rows

from builder.system import step_output
from builder.system.step_output import Line, Lines, StepLog, clean, shorten

# What cotainr 2025.7.1 writes into a pipe: frames, each clearing the one before, then the message itself.
COTAINR = (
    "".join(f"\r\x1b[2K{frame} Creating Singularity Sandbox..." for frame in "⣾⣷⣯⣟⡿⢿⣻⣽" * 50)
    + "\r\x1b[2KCreating Singularity Sandbox\nnext\n"
)


def kept(data: bytes, *, size: int = 65_536) -> list[str]:
    lines = Lines()
    found = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
    return [line.text for line in [*found, *lines.close()] if not line.passing]


@rows(
    ("written", "expected"),
    [
        ("one\ntwo\n", ["one", "two"]),
        ("no end", ["no end"]),
        ("", []),
        ("\n\na\n", ["", "", "a"]),
        ("dos\r\nlines\r\n", ["dos", "lines"]),
        (" 10%\r 50%\r100%\ndone\n", ["100%", "done"]),
        (" 10%\r 50%\r100%\r\ndone\n", ["100%", "done"]),
        ("\x1b[31mred\x1b[0m and \x1b]0;title\x07plain\n", ["red and plain"]),
        ("bell\x07 null\x00 tab\t.\n", ["bell null tab\t."]),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\\n", ["link"]),
        ("\x1b[?25l\x1b[1A\x1b[2Kx\x1b(B\x1b[m\n", ["x"]),
        (COTAINR, ["Creating Singularity Sandbox", "next"]),
        ("half a bar\r\x1b[2K", ["half a bar"]),
    ],
)
@rows("size", [1, 3, 65_536])
def test_lines_do_not_depend_on_how_the_bytes_come(written: str, expected: list[str], size: int) -> None:
    assert kept(written.encode(), size=size) == expected


def test_bytes_that_are_no_text_become_a_sign() -> None:
    assert kept(b"a\xff\xfeb\n") == ["a\ufffd\ufffdb"]
    assert kept("pä\n".encode(), size=1) == ["pä"]


def test_frames_are_shown_and_not_kept() -> None:
    found = list(Lines().feed(b"10%\r20%\r"))
    assert found == [Line("20%", passing=True)]


def test_a_line_without_end_is_cut_once_and_its_rest_dropped() -> None:
    found = kept(b"x" * 1_000_000 + b"\nnext\n", size=4096)
    assert len(found) == 2
    assert len(found[0]) <= step_output.HOLD_LIMIT + 4096
    assert found[1] == "next"


def test_a_long_line_says_how_much_it_left_out() -> None:
    assert shorten("y" * 4000) == "y" * 4000
    assert shorten("y" * 4010).endswith(" ... (10 characters more)")


def test_clean_takes_out_every_control_character() -> None:
    everything = "".join(map(chr, range(256)))
    assert re.search(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", clean(everything)) is None


def write(path: Path, *chunks: bytes) -> tuple[list[str], list[str]]:
    shown: list[str] = []
    with StepLog(path, on_line=shown.append, mask=lambda text: text.replace("hunter2", "***")) as sink:
        for chunk in chunks:
            sink.receive(chunk)
        sink.finish()
        tail = list(sink.tail)
    return shown, tail


def test_the_log_holds_what_came_masked(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "build.log"
    shown, tail = write(path, b"a\npass hun", b"ter2\nend")
    assert path.read_text() == "a\npass ***\nend\n"
    assert shown == tail == ["a", "pass ***", "end"]


def test_a_secret_is_masked_before_a_long_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "build.log"
    write(path, b"x" * (step_output.LINE_LIMIT - 3) + b"hunter2" + b"y" * 100 + b"\n")
    assert "hun" not in path.read_text()


@pytest.mark.property
def test_a_log_over_its_limit_keeps_its_beginning_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_output, "LOG_LIMIT", 1000)
    path = tmp_path / "build.log"
    _, tail = write(path, *(f"line {number}\n".encode() for number in range(100_000)))
    lines = path.read_text().splitlines()
    assert lines[0] == "line 0"
    assert lines[-1] == "line 99999"
    assert len(lines) < 700
    left_out = next(line for line in lines if "left out" in line)
    count = int(re.findall(r"\d+", left_out)[0])
    assert count == 100_000 - (len(lines) - 1)
    assert len(tail) == step_output.TAIL_LINES


def test_a_full_disk_does_not_end_the_build_or_lose_the_tail() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    shown, tail = write(Path("/dev/full"), b"No space left on device\n", b"more\n")
    assert shown == tail == ["No space left on device", "more"]
