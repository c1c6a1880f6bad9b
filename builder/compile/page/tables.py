"""Results as tables, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from builder.compile.page.measures import summary
from builder.compile.page.words import duration, megabytes
from builder.model.results import Results

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
RANK_LIMIT = 512  # rows of ranks that are shown


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of words; `right` names the columns of figures, `bad` the rows that failed."""

    name: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    bad: frozenset[int] = frozenset()
    note: str = ""
    told: tuple[str, ...] = ()  # on a narrow screen a row is stacked, with these columns below the others


def letters(reports: Sequence[Results]) -> tuple[str, ...]:
    """The letter of each report, "" when there is one alone."""
    return tuple(LETTERS[: len(reports)]) if len(reports) > 1 else ("",) * len(reports)


def stages(reports: Sequence[Results]) -> Table:
    """Steps of the builds and jobs, with their seconds."""
    queued = any(stage.queued is not None for results in reports for stage in results.stages)
    rows: list[tuple[str, ...]] = []
    bad: list[int] = []
    for letter, results in zip(letters(reports), reports, strict=True):
        for stage in results.stages:
            if stage.status not in ("ok", "skipped"):
                bad.append(len(rows))
            waited = [duration(stage.queued)] if queued else []
            rows.append(_led(letter, stage.name, stage.status, *waited, duration(stage.seconds), stage.note))
    head = ("step", "status", *(["queued"] if queued else []), "time", "")
    return _table("Steps", head, rows, right=("queued", "time"), bad=bad, led=len(reports) > 1)


def workloads(reports: Sequence[Results]) -> Table:
    """Every workload: its verdict, its time and its numbers in a line."""
    rows: list[tuple[str, ...]] = []
    bad: list[int] = []
    for letter, results in zip(letters(reports), reports, strict=True):
        for workload in results.workloads:
            if workload.verdict == "FAIL":
                bad.append(len(rows))
            seconds = duration(workload.seconds.get("total"))
            rows.append(_led(letter, workload.title, workload.verdict, seconds, summary(workload)))
    return _table("Workloads", ("workload", "verdict", "time", "measured"), rows, right=("time",), bad=bad,
                  told=("measured",),                  led=len(reports) > 1)  # fmt: skip


def checks(reports: Sequence[Results], *, failed: bool = False) -> Table:
    """Every check with what was measured and what was expected, those that failed first; or those alone."""
    found = [
        (
            check.ok,
            _led(letter, workload.title, check.name, "ok" if check.ok else "FAIL", check.measured, check.expected),
        )
        for letter, results in zip(letters(reports), reports, strict=True)
        for workload in results.workloads
        for check in workload.checks
        if not (failed and check.ok)
    ]
    found.sort(key=lambda item: item[0])
    bad = [number for number, (ok, _) in enumerate(found) if not ok]
    head = ("workload", "check", "", "measured", "expected")
    return _table(
        "Checks", head, [row for _, row in found], bad=bad, told=("measured", "expected"), led=len(reports) > 1
    )


def ranks(reports: Sequence[Results], *, most: int = RANK_LIMIT) -> Table:
    """Every rank of every workload that had some: where it ran, on what, and the checksum of its parameters."""
    rows: list[tuple[str, ...]] = []
    bad: list[int] = []
    for letter, results in zip(letters(reports), reports, strict=True):
        for workload in results.workloads:
            for rank in workload.ranks:
                if rank.error or rank.ended not in ("", "finished", "exit status 0"):
                    bad.append(len(rows))
                place = "" if rank.local_rank is None else str(rank.local_rank)
                said = rank.error or rank.ended
                rows.append(
                    _led(letter, workload.title, str(rank.rank), place, rank.host, rank.device, rank.affinity,
                         rank.checksum, duration(rank.seconds), said)
                )  # fmt: skip
    head = ("workload", "rank", "local", "host", "device", "cores", "checksum", "time", "ended")
    note = f"the first {most} of {len(rows)} ranks" if len(rows) > most else ""
    return _table("Ranks", head, rows[:most], right=("rank", "local", "time"), bad=bad, note=note,
                  led=len(reports) > 1)  # fmt: skip


def facts(reports: Sequence[Results]) -> Table:
    """The environment, a fact a row and a report a column; rows in which the reports differ are marked."""
    described = [describe(results) for results in reports]
    names = dict.fromkeys(name for facts in described for name in facts)
    rows = [(name, *(facts.get(name, "-") for facts in described)) for name in names]
    head = ("", *letters(reports)) if len(reports) > 1 else ("", "")
    differing = [number for number, row in enumerate(rows) if len(set(row[1:])) > 1]
    return Table(name="Environment", head=head, rows=tuple(rows), bad=frozenset(differing))


def packages(reports: Sequence[Results]) -> Table:
    """What became of the recipe's packages; of several reports only what differs between them."""
    names = dict.fromkeys(name for results in reports for name in results.packages)
    rows = [(name, *(results.packages.get(name, "-") for results in reports)) for name in names]
    if len(reports) > 1:
        rows = [row for row in rows if len(set(row[1:])) > 1]
    head = ("asked", *letters(reports)) if len(reports) > 1 else ("asked", "became")
    return Table(name="Packages", head=head, rows=tuple(rows))


def describe(results: Results) -> dict[str, str]:
    """The facts of one report, with its image."""
    image = {
        "image": results.image,
        "image size": megabytes(results.image_bytes) if results.image_bytes is not None else "",
        "image SHA-256": results.image_sha256,
    }
    return {key: value for key, value in {**image, **results.facts}.items() if value}


def _led(letter: str, *cells: str) -> tuple[str, ...]:
    return (letter, *cells) if letter else cells


def _table(
    name: str,
    head: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    right: Iterable[str] = (),
    bad: Iterable[int] = (),
    note: str = "",
    told: tuple[str, ...] = (),
    led: bool = False,
) -> Table:
    head = ("", *head) if led else head
    # A column in which nothing stands says nothing.
    kept = [index for index in range(len(head)) if not rows or any(row[index] for row in rows)]
    head = tuple(head[index] for index in kept)
    rows = [tuple(row[index] for index in kept) for row in rows]
    columns = frozenset(head.index(title) for title in right if title in head)
    return Table(name=name, head=head, rows=tuple(rows), right=columns, bad=frozenset(bad), note=note, told=told)
