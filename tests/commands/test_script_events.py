"""What the scripts of a plan report, and what they print, which is the same where no one reads the events."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from builder.compile.render import read_template
from builder.sif import errors, pack
from builder.system.step_output import Event, make_events_file, open_events

ODD = 'it\'s "a" \\\\ $(id) `id` ü\ttab\x01'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the functions of the step scripts, and a file for events."""
    (tmp_path / "engine.sh").write_text(read_template("engine.sh"))
    make_events_file(tmp_path / "events")
    return tmp_path


def run(
    folder: Path, text: str, *words: str, events: bool = True
) -> tuple[subprocess.CompletedProcess[str], list[Event]]:
    environment = {"PATH": os.environ["PATH"], **({"RECIPE_EVENTS": str(folder / "events")} if events else {})}
    script = f"set -eo pipefail\n. ./engine.sh\nset -u\n{text}\n"
    command = ["bash", "-c", script, "step", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done, open_events(folder / "events").read()


def test_an_image_that_is_whole_is_reported(folder: Path) -> None:
    (folder / "x.sif.part").write_text("image")
    done, events = run(folder, "put_in_place x.sif.part x.sif")
    assert done.returncode == 0, done.stderr
    assert [(event.name, event.get_text("image")) for event in events] == [("whole", "x.sif.part")]
    assert (folder / "x.sif").read_text() == "image"


def test_a_failure_is_reported_whatever_is_in_it(folder: Path) -> None:
    done, events = run(folder, 'fail "$1"', ODD)
    assert done.returncode == 1
    assert done.stderr == f"recipe: error: {ODD}\n"
    assert [event.get_text("message") for event in events] == [ODD.replace("\t", " ").replace("\x01", " ")]


def test_by_hand_the_same_is_printed_and_nothing_reported(folder: Path) -> None:
    (folder / "x.sif.part").write_text("image")
    script = "put_in_place x.sif.part x.sif; fail over"
    by_hand, none = run(folder, script, events=False)
    (folder / "x.sif").rename(folder / "x.sif.part")
    ours, events = run(folder, script)
    assert (by_hand.stdout, by_hand.stderr, by_hand.returncode) == (ours.stdout, ours.stderr, ours.returncode)
    assert (none, [event.name for event in events]) == ([], ["whole", "error"])


def test_the_answer_of_an_image_is_reported_at_the_end(folder: Path) -> None:
    answer = '{\n  "expected": {},\n  "found": {"torch": "2.6.0"}\n}\n'
    text = 'temporary_folder "$PWD/tmp"\nmkdir "$work/answer"\nprintf %s "$1" >"$work/answer/answer.json"; exit 3'
    done, events = run(folder, text, answer)
    assert done.returncode == 3, done.stderr
    assert [event.get_table("answer")["found"] for event in events] == [{"torch": "2.6.0"}]


def test_a_link_in_the_place_of_an_answer_is_not_read(folder: Path) -> None:
    (folder / "secret").write_text('{"found": {"torch": "secret"}}')
    text = 'temporary_folder "$PWD/tmp"\nmkdir "$work/answer"\nln -s "$PWD/secret" "$work/answer/answer.json"'
    done, events = run(folder, text)
    assert (done.returncode, events) == (0, [])


def test_a_link_in_the_place_of_the_events_is_not_written(folder: Path) -> None:
    (folder / "events").unlink()
    (folder / "mine").write_text("")
    (folder / "events").symlink_to(folder / "mine")
    done, events = run(folder, "fail over")
    assert (done.returncode, events, (folder / "mine").read_text()) == (1, [], "")


def test_packing_reports_how_much_of_the_tree_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tree" / "below").mkdir(parents=True)
    size = 30_000_000
    (folder / "tree" / "below" / "noise").write_bytes(os.urandom(size))
    (folder / "tree" / "link").symlink_to("below")
    monkeypatch.setenv("RECIPE_EVENTS", str(folder / "events"))
    monkeypatch.setattr(errors, "PAUSE", 0.01)
    packer = pack.find_packer(zstd=False, time=0)
    packer.pack([folder / "tree"], folder / f"{'2b' * 32}.sqfs", title="pip packages")
    events = [json.loads(line) for line in (folder / "events").read_text().splitlines()]
    assert {(event["event"], event["what"], event["total"]) for event in events} == {
        ("progress", "packing pip packages", size)
    }
    done = [event["done"] for event in events]
    assert done == sorted(done)
    assert 0 < done[0] < done[-1] == size
