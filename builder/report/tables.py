"""Figures that are worked out of a workload's result: step time, throughput, parts of its time, bandwidths.

Results as tables, for the terminal and for the page.

Two or more results side by side, with each one's ratio to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from builder.model.results import Results, Transfer, WorkloadResult
from builder.report.units import duration, figure, megabytes, ratio, size

# What a part of a workload's time is called; one that is not here is called by its own name.
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
KEY_SIZE = 128 << 20  # bytes: the size at which sites give what they expect


def step_seconds(workload: WorkloadResult) -> float | None:
    """Seconds of one optimizer step."""
    train, steps = workload.seconds.get("train"), workload.training.steps
    return train / steps if train is not None and steps else None


def throughput(workload: WorkloadResult) -> float | None:
    """Images a second over all ranks."""
    train, images = workload.seconds.get("train"), workload.training.images
    return images / train if train and images is not None else None


def import_seconds(results: Results) -> float | None:
    """Seconds of `import torch`: the startup workload's, else the first that another has measured."""
    for keys in (("import_torch",), ("import",)):
        for workload in results.workloads:
            for key in keys:
                if key in workload.seconds:
                    return workload.seconds[key]
    return None


def parts(workload: WorkloadResult) -> tuple[tuple[str, float], ...]:
    """The parts of a workload's time in the order they were spent, and what of the total they leave."""
    known = [(PARTS[key], workload.seconds[key]) for key in PARTS if key in workload.seconds]
    rest = workload.seconds.get("total", 0.0) - sum(seconds for _, seconds in known)
    if rest < -0.05 * workload.seconds.get("total", 0.0):
        known = []  # they overlap, and are no parts
        rest = workload.seconds.get("total", 0.0)
    return tuple([*known, (OTHER, rest)] if rest > 0 else known)


def key_transfer(workload: WorkloadResult) -> Transfer | None:
    """The transfer to name where one must do: at 128 MiB, else the largest."""
    measured = [transfer for transfer in workload.sweep if transfer.busbw is not None]
    return next((one for one in measured if one.size == KEY_SIZE), measured[-1] if measured else None)


def summary(workload: WorkloadResult) -> str:
    """One workload's numbers in a line."""
    training, said = workload.training, list[str]()
    if workload.name == "probe" and workload.ranks:
        hosts = len({rank.host for rank in workload.ranks})
        said.append(f"{len(workload.ranks)} ranks on {hosts} {'host' if hosts == 1 else 'hosts'}")
    if training.accuracy is not None:
        said.append(f"accuracy {figure(training.accuracy)}")
    if training.first_loss is not None and training.last_loss is not None:
        said.append(f"loss {figure(training.first_loss)} to {figure(training.last_loss)}")
    step = step_seconds(workload)
    if step is not None:
        said.append(f"{duration(step)} a step")
    transfer = key_transfer(workload)
    if transfer is not None:
        floor = dict(workload.floors).get(transfer.size)
        limit = f" (floor {figure(floor)})" if floor is not None else ""
        said.append(f"busbw {figure(transfer.busbw)} GB/s at {size(transfer.size)}{limit}")
    if workload.pi is not None:
        said.append(f"pi {workload.pi:.10f}")
    if training.accuracy is None:
        said += [f"{PARTS[key]} {duration(workload.seconds[key])}" for key in STARTUP if key in workload.seconds]
    if FIRST_STEP in workload.seconds:
        said.append(f"first step after {duration(workload.seconds[FIRST_STEP])}")
    return ", ".join([*said, *filter(None, [workload.error])])


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


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement in every report, None where a report has none; `better` says which way."""

    name: str
    unit: str
    values: tuple[float | None, ...]
    better: str = ""  # "less" or "more"
    detail: bool = False  # one of many of its kind

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """Each later value over the first."""
        first = self.values[0]
        return tuple(value / first if first and value is not None else None for value in self.values[1:])


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A fact of the environment in which the reports differ."""

    name: str
    values: tuple[str, ...]


Take = Callable[[WorkloadResult], float | None]
# What is compared of every workload: name, unit, how it is taken, which way is better.
TAKEN: tuple[tuple[str, str, Take, str], ...] = (
    ("total", "s", lambda one: one.seconds.get("total"), "less"),
    *((PARTS[key], "s", (lambda one, key=key: one.seconds.get(key)), "less") for key in PARTS),
    ("exec to first step", "s", lambda one: one.seconds.get(FIRST_STEP), "less"),
    ("step", "s", step_seconds, "less"),
    ("images a second", "1/s", throughput, "more"),
    ("accuracy", "", lambda one: one.training.accuracy, "more"),
    ("last loss", "", lambda one: one.training.last_loss, "less"),
)


def compare(reports: Sequence[Results]) -> tuple[Row, ...]:
    """Compare what all, or some, of the reports have measured."""
    whole = [
        Row(name="image size", unit="B", values=tuple(_of(results.image_bytes) for results in reports), better="less"),
        Row(name="build", unit="s", values=tuple(results.build_seconds for results in reports), better="less"),
        Row(name="import torch", unit="s", values=tuple(map(import_seconds, reports)), better="less"),
    ]
    rows = [*whole, *(row for key in _keys(reports) for row in _workload(key, reports))]
    return tuple(row for row in rows if any(value is not None for value in row.values))


def differences(reports: Sequence[Results]) -> tuple[Difference, ...]:
    """Name the facts that differ; what cannot be the same (the file, when it was made) is none."""
    described = [describe(results) for results in reports]
    own = ("image", "image size", "image SHA-256", "started")
    names = dict.fromkeys(name for facts in described for name in facts if name not in own)
    found = [Difference(name=name, values=tuple(facts.get(name, "-") for facts in described)) for name in names]
    packages = dict.fromkeys(name for results in reports for name in results.packages)
    if all(results.packages for results in reports):
        found += [
            Difference(name=f"package {name}", values=tuple(results.packages.get(name, "-") for results in reports))
            for name in packages
        ]
    return tuple(difference for difference in found if len(set(difference.values)) > 1)


def comparison(reports: Sequence[Results], *, detail: bool | None = None) -> Table:
    """The comparison as a table: a measurement a row, a report a column, then the ratios; all, or those of a kind."""
    rows = [row for row in compare(reports) if detail in (None, row.detail)]
    names = LETTERS[: len(reports)]
    head = ("", *names, *(f"{name}/A" for name in names[1:]))
    written = tuple(
        (row.name, *(_written(row.unit, value) for value in row.values), *map(ratio, row.ratios)) for row in rows
    )
    return Table(name="Comparison", head=head, rows=written, right=frozenset(range(1, len(head))))


def _keys(reports: Sequence[Results]) -> Iterable[tuple[str, str, int]]:
    return dict.fromkeys((one.shape, one.name, one.world) for results in reports for one in results.workloads)


def _workload(key: tuple[str, str, int], reports: Sequence[Results]) -> Iterator[Row]:
    found = [
        next((one for one in results.workloads if (one.shape, one.name, one.world) == key), None) for results in reports
    ]
    title = next(one.title for one in found if one is not None)
    for name, unit, take, better in TAKEN:
        values = tuple(None if one is None else take(one) for one in found)
        yield Row(name=f"{title}: {name}", unit=unit, values=values, better=better)
    sweeps = [{transfer.size: transfer.busbw for transfer in one.sweep} if one else {} for one in found]
    named = {transfer.size for one in found if one is not None and (transfer := key_transfer(one)) is not None}
    for count in sorted({count for sweep in sweeps for count in sweep}):
        values = tuple(sweep.get(count) for sweep in sweeps)
        name, detail = f"{title}: busbw at {size(count)}", count not in named
        yield Row(name=name, unit="GB/s", values=values, better="more", detail=detail)


def _of(count: int | None) -> float | None:
    return None if count is None else float(count)


def _written(unit: str, value: float | None) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return duration(value)
    if unit == "B":
        return megabytes(round(value))
    return f"{figure(value)} {unit}".strip()
