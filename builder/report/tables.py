"""Results as tables, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from builder.model.results import Results, SbomPackage
from builder.model.units import format_bytes, format_duration
from builder.report.metrics import summarize_workload

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
RANK_LIMIT = 512  # rows
INSTALLED_LIMIT = 500  # rows
VERDICTS = ("verdict", "status", "ended")  # columns that the page colours


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A table of text; `right` has the columns of numbers, `verdicts` those of verdicts, `bad` the rows that failed."""

    name: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    bad: frozenset[int] = frozenset()
    note: str = ""
    verdicts: frozenset[int] = frozenset()
    stacked: tuple[str, ...] = ()  # columns that a narrow screen shows below the others of a row


def assign_letters(reports: Sequence[Results]) -> tuple[str, ...]:
    """Give each report a letter, "" to a single one."""
    return tuple(LETTERS[: len(reports)]) if len(reports) > 1 else ("",) * len(reports)


def tabulate_stages(reports: Sequence[Results]) -> ResultTable:
    """Tabulate the steps of the builds and the jobs with their times."""
    queued = any(stage.queued is not None for results in reports for stage in results.stages)
    rows: list[tuple[str, ...]] = []
    bad: list[int] = []
    for letter, results in zip(assign_letters(reports), reports, strict=True):
        for stage in results.stages:
            if stage.status not in ("ok", "skipped"):
                bad.append(len(rows))
            queue = [format_duration(stage.queued)] if queued else []
            rows.append(
                _prepend_letter(letter, stage.name, stage.status, *queue, format_duration(stage.seconds), stage.note)
            )
    head = ("step", "status", *(["queued"] if queued else []), "time", "note")
    return _table("Steps", head, rows, right=("queued", "time"), bad=bad, stacked=("note",), lettered=len(reports) > 1)


def tabulate_workloads(reports: Sequence[Results]) -> ResultTable:
    """Tabulate every workload: its verdict, its time and its numbers."""
    rows: list[tuple[str, ...]] = []
    bad: list[int] = []
    for letter, results in zip(assign_letters(reports), reports, strict=True):
        for workload in results.workloads:
            if workload.verdict == "FAIL":
                bad.append(len(rows))
            seconds = format_duration(workload.seconds.get("total"))
            rows.append(
                _prepend_letter(letter, workload.title, workload.verdict, seconds, summarize_workload(workload))
            )
    return _table("Workloads", ("workload", "verdict", "time", "measured"), rows, right=("time",), bad=bad,
                  stacked=("measured",),                  lettered=len(reports) > 1)  # fmt: skip


def tabulate_checks(reports: Sequence[Results], *, failed: bool = False) -> ResultTable:
    """Tabulate the checks with what was measured and expected, failed ones first; or only the failed ones."""
    found = [
        (
            check.ok,
            _prepend_letter(
                letter, workload.title, check.name, "ok" if check.ok else "FAIL", check.measured, check.expected
            ),
        )
        for letter, results in zip(assign_letters(reports), reports, strict=True)
        for workload in results.workloads
        for check in workload.checks
        if not (failed and check.ok)
    ]
    found.sort(key=lambda item: item[0])
    bad = [number for number, (ok, _) in enumerate(found) if not ok]
    head = ("workload", "check", "verdict", "measured", "expected")
    return _table(
        "Checks", head, [row for _, row in found], bad=bad, stacked=("measured", "expected"), lettered=len(reports) > 1
    )


def tabulate_ranks(reports: Sequence[Results], *, most: int = RANK_LIMIT) -> ResultTable:
    """Tabulate the ranks: node, device, cores, checksum of the parameters, time."""
    rows: list[tuple[str, ...]] = []
    bad: list[int] = []
    for letter, results in zip(assign_letters(reports), reports, strict=True):
        for workload in results.workloads:
            for rank in workload.ranks:
                if rank.error or rank.ended not in ("", "finished", "exit status 0"):
                    bad.append(len(rows))
                place = "" if rank.local_rank is None else str(rank.local_rank)
                ended = rank.error or rank.ended
                rows.append(
                    _prepend_letter(letter, workload.title, str(rank.rank), place, rank.host, rank.device,
                                    rank.affinity, rank.checksum, format_duration(rank.seconds), ended)
                )  # fmt: skip
    head = ("workload", "rank", "local", "host", "device", "cores", "checksum", "time", "ended")
    note = f"the first {most} of {len(rows)} ranks" if len(rows) > most else ""
    return _table("Ranks", head, rows[:most], right=("rank", "local", "time"), bad=bad, note=note,
                  lettered=len(reports) > 1)  # fmt: skip


def tabulate_facts(reports: Sequence[Results]) -> ResultTable:
    """Tabulate the environment, a column for each report; rows in which they differ are marked."""
    described = [describe_results(results) for results in reports]
    names = dict.fromkeys(name for facts in described for name in facts)
    rows = [(name, *(facts.get(name, "-") for facts in described)) for name in names]
    head = ("", *assign_letters(reports)) if len(reports) > 1 else ("", "")
    differing = [number for number, row in enumerate(rows) if len(set(row[1:])) > 1]
    return ResultTable(name="Environment", head=head, rows=tuple(rows), bad=frozenset(differing))


def tabulate_packages(reports: Sequence[Results]) -> ResultTable:
    """Tabulate what each package of the recipe became; of several reports only what differs between them."""
    names = dict.fromkeys(name for results in reports for name in results.packages)
    rows = [(name, *(results.packages.get(name, "-") for results in reports)) for name in names]
    if len(reports) > 1:
        rows = [row for row in rows if len(set(row[1:])) > 1]
    head = ("requested", *assign_letters(reports)) if len(reports) > 1 else ("requested", "became")
    return ResultTable(name="Packages", head=head, rows=tuple(rows))


def tabulate_installed(packages: Sequence[SbomPackage]) -> ResultTable:
    most = INSTALLED_LIMIT
    rows = [(one.name, one.version, one.kind) for one in packages[:most]]
    note = f"the first {most} of {len(packages)}; the SBOM has all of them" if len(packages) > most else ""
    return _table("Packages in the image", ("package", "version", "kind"), rows, note=note)


def describe_results(results: Results) -> dict[str, str]:
    """Name the facts of one report and its image."""
    image = {
        "image": results.image,
        "image size": format_bytes(results.image_bytes) if results.image_bytes is not None else "",
        "image SHA-256": results.image_sha256,
    }
    facts = {**image, **results.facts}
    if facts.get("started"):
        facts["started"] = format_time(facts["started"])
    return {key: value for key, value in facts.items() if value}


def _prepend_letter(letter: str, *cells: str) -> tuple[str, ...]:
    return (letter, *cells) if letter else cells


def _table(
    name: str,
    head: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    right: Iterable[str] = (),
    bad: Iterable[int] = (),
    note: str = "",
    stacked: tuple[str, ...] = (),
    lettered: bool = False,
) -> ResultTable:
    head = ("", *head) if lettered else head
    used = [index for index in range(len(head)) if not rows or any(row[index] for row in rows)]
    head = tuple(head[index] for index in used)
    rows = [tuple(row[index] for index in used) for row in rows]
    columns = frozenset(head.index(title) for title in right if title in head)
    verdicts = frozenset(head.index(title) for title in VERDICTS if title in head)
    return ResultTable(
        name=name, head=head, rows=tuple(rows), right=columns, bad=frozenset(bad), note=note, verdicts=verdicts,
        stacked=stacked,
    )  # fmt: skip


def format_time(stamp: str) -> str:
    """Write a time of ISO 8601 in UTC, and in the zone of this machine where that is another one."""
    try:
        found = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
        utc, local = found.astimezone(timezone.utc), found.astimezone()
    except (ValueError, OverflowError):
        return stamp
    here = f" ({local:%Y-%m-%d %H:%M} {local.tzname()})" if local.utcoffset() else ""
    return f"{utc:%Y-%m-%d %H:%M} UTC{here}"
