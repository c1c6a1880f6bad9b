"""Events of a step: what programs report, read from a file that may hold anything."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.rows import rows

from builder.sif.errors import LIMIT, VARIABLE, Meter, report
from builder.system.step_output import LINE, make_events_file, open_events, open_events_below


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file for events that programs of this process report to."""
    found = tmp_path / "step.events.jsonl"
    make_events_file(found)
    monkeypatch.setenv(VARIABLE, str(found))
    return found


def test_what_is_reported_is_read_once(path: Path) -> None:
    events = open_events(path)
    report("whole", image="a.sif.part")
    assert [(event.name, event.get_text("image")) for event in events.read()] == [("whole", "a.sif.part")]
    assert events.read() == []
    report("answer", found={"torch": "2.6.0"})
    (event,) = events.read()
    assert event.get_table("found") == {"torch": "2.6.0"}


def test_a_torn_line_is_read_when_it_is_whole(path: Path) -> None:
    events = open_events(path)
    with path.open("a") as file:
        file.write('{"event": "who')
        file.flush()
        assert events.read() == []
        file.write('le", "image": "x"}\n{"event"')
        file.flush()
        assert [event.get_text("image") for event in events.read()] == ["x"]
    assert events.read() == []


@rows(
    "line",
    [
        "", "no JSON", "[]", "7", '{"event": 3}', '{"no": "event"}', '{"event": "x", "a": NaN}', "[" * 5000, "\x00\xff",
        '{"event": "x", "a": "' + "a" * LINE + '"}',
    ],
)  # fmt: skip
def test_what_is_no_event_is_left_out(path: Path, line: str) -> None:
    path.write_bytes(line.encode("utf-8", "surrogateescape") + b'\n{"event": "good"}\n')
    assert [event.name for event in open_events(path).read()] == ["good"]


def test_a_long_line_that_comes_in_parts_is_left_out(path: Path) -> None:
    events = open_events(path)
    with path.open("ab") as file:
        for _ in range(3):
            file.write(b"x" * LINE)
            file.flush()
            assert events.read() == []
        file.write(b'"}\n{"event": "good"}\n')
    assert [event.name for event in events.read()] == ["good"]


def test_values_may_be_anything(path: Path) -> None:
    path.write_text(json.dumps({"event": "progress", "done": -4, "total": "many", "what": ["x"], "fix": None}) + "\n")
    (event,) = open_events(path).read()
    assert (event.count("done"), event.count("total"), event.get_text("what"), event.get_table("fix")) == (0, 0, "", {})


def test_only_so_much_of_a_file_is_read(path: Path) -> None:
    blanks = (b" " * 999 + b"\n") * ((LIMIT + LINE) // 1000 + 1)
    path.write_bytes(b'{"event": "first"}\n' + blanks + b'{"event": "last"}\n')
    assert [event.name for event in open_events(path).read()] == ["first"]


def test_a_full_file_gets_no_more_events(path: Path) -> None:
    path.write_bytes(b"\n" * LIMIT)
    report("whole", image="x")
    assert path.stat().st_size == LIMIT


def test_no_link_and_no_pipe_is_read_or_written(path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"event": "whole"}\n')
    path.unlink()
    path.symlink_to(secret)
    report("whole", image="x")
    assert (open_events(path).read(), secret.read_text()) == ([], '{"event": "whole"}\n')
    path.unlink()
    os.mkfifo(path)
    report("whole", image="x")
    assert open_events(path).read() == []


def test_a_link_below_a_plan_folder_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "x.plan"
    (folder / "jobs").mkdir(parents=True)
    (tmp_path / "secret").write_text('{"event": "whole"}\n')
    (folder / "jobs" / "7.events.jsonl").symlink_to(tmp_path / "secret")
    assert open_events_below(folder, "jobs/7.events.jsonl").read() == []


def test_a_login_and_a_secret_are_not_kept(path: Path) -> None:
    report("error", message="no answer from https://me:word@host/simple", fix="")
    assert "word" not in path.read_text()
    path.write_text('{"event": "error", "message": "token=S3CRET"}\n')
    (event,) = open_events(path, mask=lambda text: text.replace("S3CRET", "***")).read()
    assert event.get_text("message") == "token=***"


def test_without_a_file_nothing_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    report("whole", image="x")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none" / "x"))
    report("whole", image="x")
    assert list(tmp_path.iterdir()) == []


def test_how_far_something_is_comes_a_few_times_a_second(path: Path) -> None:
    meter = Meter("base image", total=100)
    for _ in range(100):
        meter.add(1)
    found = [(event.get_text("what"), event.count("done"), event.count("total")) for event in open_events(path).read()]
    assert found[0] == ("base image", 1, 100)
    assert found[-1] == ("base image", 100, 100)
    assert len(found) < 10


def test_a_file_for_events_is_new_and_of_this_user_alone(path: Path) -> None:
    path.write_text("old\n")
    make_events_file(path)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("", 0o600)
