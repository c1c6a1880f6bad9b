"""A rank that fails exits after rank 0 has written the result: its launcher ends all ranks then."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from builder.smoke import ranks
from builder.smoke.options import parse
from builder.smoke.ranks import Placement, RankRun
from builder.smoke.result_files import UNFINISHED


def start_rank(path: Path, rank: int) -> RankRun:
    options = parse(["ddp", "--result", str(path)])
    return RankRun(options, Placement(rank, 2, rank, "slurm"))


def test_a_failed_rank_exits_after_the_result_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_LEAD_SECONDS", 500.0)
    path = tmp_path / "ddp.json"
    first, second = start_rank(path, 0), start_rank(path, 1)
    first.write_initial()
    second.write_initial()
    ended: list[tuple[int, float]] = []
    waiting = threading.Thread(target=lambda: ended.append((second.end("it failed"), time.monotonic())))
    waiting.start()
    deadline = time.monotonic() + 120
    while json.loads((tmp_path / "ddp.json.rank1.json").read_text())["error"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert json.loads(path.read_text())["error"] == UNFINISHED
    before = time.monotonic()
    first.end("rank 1 failed")
    waiting.join(120)
    [(status, when)] = ended
    assert status == 1
    assert when > before
    assert json.loads(path.read_text())["verdict"] == "FAIL"


def test_a_failed_rank_waits_no_longer_than_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_LEAD_SECONDS", 0.2)
    path = tmp_path / "ddp.json"
    start_rank(path, 0).write_initial()
    alone = start_rank(path, 1)
    alone.write_initial()
    assert alone.end("it failed") == 1  # rank 0 never writes a result
    assert json.loads(path.read_text())["error"] == UNFINISHED


def test_a_rank_that_stopped_for_another_is_not_ended_when_told(tmp_path: Path) -> None:
    """All stop before the same step, and each learns of the job's end by itself: a late one has its text already."""
    rank = start_rank(tmp_path / "ddp.json", 0)
    assert not rank.stop(15)
    rank.stoppable = True
    assert rank.stop(15)
    rank.record["stopped"], rank.stoppable = {"signal": 15}, False
    assert rank.stop(15)
