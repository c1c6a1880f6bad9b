"""Results as tables, for the terminal and for the page, and the values computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import combinations

from builder.model.results import Rank, Results, SbomPackage, Transfer, WorkloadResult
from builder.model.text import format_bytes, format_duration, format_number
from builder.smoke.options import format_size

# Names of the parts of a workload's time, in the order in which they are spent.
PARTS = {
    "exec_to_python": "exec to Python",
    "import_torch": "import torch",
    "import": "import torch",
    "first_device": "first device",
    "first_step": "first step",
    "data": "data",
    "train": "training",
    "test": "test",
}
OTHER = "other"
STARTUP = ("exec_to_python", "import_torch", "import", "first_device", "first_step")
FIRST_STEP = "exec_to_first_step"  # a sum of parts
KEY_SIZE = 128 << 20  # bytes: the size for which sites state the expected bandwidth
RANKS_COMPARED = 128  # of one workload: enough to see that cores are shared
CORES_COMPARED = 4096  # of one rank


def compute_step_seconds(workload: WorkloadResult) -> float | None:
    """Seconds of one optimizer step."""
    train, steps = workload.seconds.get("train"), workload.training.steps
    return train / steps if train is not None and steps else None


def compute_throughput(workload: WorkloadResult) -> float | None:
    """Images a second over all ranks."""
    train, images = workload.seconds.get("train"), workload.training.images
    return images / train if train and images is not None else None


def find_import_seconds(results: Results) -> float | None:
    """Seconds of `import torch`: the startup workload's, else the first that another one measured."""
    for keys in (("import_torch",), ("import",)):
        for workload in results.workloads:
            for key in keys:
                if key in workload.seconds:
                    return workload.seconds[key]
    return None


def split_time(workload: WorkloadResult) -> tuple[tuple[str, float], ...]:
    """The parts of a workload's time in the order they were spent, then the rest of the total."""
    known = [(PARTS[key], workload.seconds[key]) for key in PARTS if key in workload.seconds]
    rest = workload.seconds.get("total", 0.0) - sum(seconds for _, seconds in known)
    if rest < -0.05 * workload.seconds.get("total", 0.0):
        known = []  # they overlap
        rest = workload.seconds.get("total", 0.0)
    return tuple([*known, (OTHER, rest)] if rest > 0 else known)


def choose_key_transfer(workload: WorkloadResult) -> Transfer | None:
    """The transfer that represents a sweep: at 128 MiB, else the largest."""
    measured = [transfer for transfer in workload.sweep if transfer.busbw is not None]
    return next((one for one in measured if one.size == KEY_SIZE), measured[-1] if measured else None)


def summarize_workload(workload: WorkloadResult) -> str:
    """One workload's numbers in a line."""
    training, words = workload.training, list[str]()
    if workload.name == "probe" and workload.ranks:
        hosts = len({rank.host for rank in workload.ranks})
        words.append(f"{len(workload.ranks)} ranks on {hosts} {'host' if hosts == 1 else 'hosts'}")
    if training.accuracy is not None:
        words.append(f"accuracy {format_number(training.accuracy)}")
    if training.first_loss is not None and training.last_loss is not None:
        words.append(f"loss {format_number(training.first_loss)} to {format_number(training.last_loss)}")
    step = compute_step_seconds(workload)
    if step is not None:
        words.append(f"{format_duration(step)} a step")
    transfer = choose_key_transfer(workload)
    if transfer is not None:
        floor = dict(workload.floors).get(transfer.size)
        limit = f" (floor {format_number(floor)})" if floor is not None else ""
        words.append(f"busbw {format_number(transfer.busbw)} GB/s at {format_size(transfer.size)}{limit}")
    if workload.pi is not None:
        words.append(f"pi {workload.pi:.10f}")
    if training.accuracy is None:
        words += [
            f"{PARTS[key]} {format_duration(workload.seconds[key])}" for key in STARTUP if key in workload.seconds
        ]
    if FIRST_STEP in workload.seconds:
        words.append(f"first step after {format_duration(workload.seconds[FIRST_STEP])}")
    return ", ".join([*words, *filter(None, [workload.error])])


def find_shared_cores(workload: WorkloadResult) -> str:
    """Name the node on which CPU ranks of a workload used the same cores, "" where none did or it is unknown."""
    if workload.device and workload.device != "cpu":
        return ""
    for first, second in combinations([rank for rank in workload.ranks if rank.affinity][:RANKS_COMPARED], 2):
        if first.host == second.host and _is_cpu(first) and _is_cpu(second) and _cores(first) & _cores(second):
            return first.host or "one node"
    return ""


def _is_cpu(rank: Rank) -> bool:
    return rank.device in ("", "cpu")


def _cores(rank: Rank) -> frozenset[int]:
    """The cores of a rank from its ranges, e.g. "0-6,8"."""
    found: set[int] = set()
    for part in rank.affinity.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            low, high = int(first[:6]), int((last or first)[:6])
            found.update(range(low, min(high, low + CORES_COMPARED) + 1))
    return frozenset(found)


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
