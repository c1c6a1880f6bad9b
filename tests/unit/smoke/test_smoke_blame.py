"""Whom to blame, from the records that the ranks left."""

from __future__ import annotations

from typing import Any

from support.rows import rows

from builder.smoke.result_files import describe_unfinished, diagnose

CLOSED = "the communication failed while training: Connection closed by peer [10.0.0.2]:1234"
LIMIT = "ended at its limit of 60 s"


def rank(number: int, heard: float = 100.0, **facts: Any) -> dict[str, Any]:
    return {"rank": number, "host": f"n{number}", "state": "training", "error": None, "heard": heard, **facts}


def lost(number: int, heard: float = 100.0) -> dict[str, Any]:
    return rank(number, heard, error=CLOSED, lost=True)


def limited(number: int) -> dict[str, Any]:
    return rank(number, 100.0, error=LIMIT, ended_early=True)


@rows(
    ("records", "world", "said"),
    [
        ([lost(0), rank(1, error="torch cannot be imported")], 2, "rank 1: torch cannot be imported"),
        # both failed themselves: the later one may have failed of the other's end
        ([rank(0, 101.5, error="no answer"), rank(1, error="CUDA error")], 2, "rank 1: CUDA error"),
        ([lost(0), rank(1), lost(2)], 3, f"rank 1 on n1 died while training (rank 0: {CLOSED})"),
        ([rank(0), lost(1)], 2, f"rank 0 on n0 died while training (rank 1: {CLOSED})"),
        # rank 2 waits for a bystander and lives: it gave a sign of life a moment ago
        (
            [lost(0), rank(1, 92.0), rank(2, 99.0)],
            3,
            f"rank 1 on n1 died while training, 8 s before the others were last heard of (rank 0: {CLOSED})",
        ),
        (
            [limited(0), rank(1, 80.0)],
            2,
            "rank 1 on n1 died or hung while training, 20 s before the others were last heard of",
        ),
        ([lost(0), lost(1)], 3, f"rank 2 never reported (rank 0: {CLOSED})"),
        ([lost(0), lost(1)], 2, f"rank 0: {CLOSED}"),
        ([rank(0, finished=True), rank(1, finished=True)], 2, None),
        ([rank(0), rank(1)], 2, None),
        ([limited(0), limited(1)], 2, None),
        (
            [rank(0, error="1 of 2 ranks never joined: rank 1", lost=True, absent=[1])],
            2,
            "rank 0: 1 of 2 ranks never joined: rank 1",
        ),
    ],
)
def test_blame(records: list[dict[str, Any]], world: int, said: str | None) -> None:
    assert diagnose(records, world) == said
    assert diagnose(records[::-1], world) == said


def test_many_silent_ranks_are_counted() -> None:
    said = diagnose([limited(0), *(rank(number, 50.0) for number in range(1, 10))], 10)
    assert said is not None
    assert said.startswith("rank 1 on n1 died or hung")
    assert said.endswith(" and 5 more")


def test_what_ranks_were_at() -> None:
    records = [rank(0), rank(1, 90.0), rank(2, finished=True)]
    assert describe_unfinished(records, range(4)) == (
        "rank 0 was training, rank 1 was training (nothing heard of it for 10 s), rank 3 never reported"
    )
