"""Two or more results side by side, with the ratio of each to the first.

A ratio compares what came to its end: a build that failed or was interrupted, and a workload with an error, have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from builder.model.results import Results, WorkloadResult
from builder.model.text import format_bytes, format_duration, format_number, format_ratio
from builder.report.tables import (
    FIRST_STEP,
    LETTERS,
    PARTS,
    ResultTable,
    choose_key_transfer,
    compute_step_seconds,
    compute_throughput,
    describe_results,
    find_import_seconds,
)
from builder.smoke.options import format_size


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measurement in every report, None where a report has none; `better` is the direction, less or more."""

    name: str
    unit: str
    values: tuple[float | None, ...]
    better: str = ""  # "less" or "more"
    detail: bool = False  # one of many of its kind
    complete: tuple[bool, ...] = ()  # whether each was measured in something that came to its end; () is all of them

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """Each later value over the first, None unless both are complete."""
        complete = self.complete or (True,) * len(self.values)
        first = self.values[0] if complete[0] else None
        return tuple(
            value / first if first and value is not None and good else None
            for value, good in zip(self.values[1:], complete[1:], strict=True)
        )


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A fact of the environment in which the reports differ."""

    name: str
    values: tuple[str, ...]


Metric = Callable[[WorkloadResult], float | None]
# What is compared of every workload: name, unit, function, which direction is better.
METRICS: tuple[tuple[str, str, Metric, str], ...] = (
    ("total", "s", lambda one: one.seconds.get("total"), "less"),
    *((PARTS[key], "s", (lambda one, key=key: one.seconds.get(key)), "less") for key in PARTS),
    ("exec to first step", "s", lambda one: one.seconds.get(FIRST_STEP), "less"),
    ("step", "s", compute_step_seconds, "less"),
    ("images a second", "1/s", compute_throughput, "more"),
    ("accuracy", "", lambda one: one.training.accuracy, "more"),
    ("last loss", "", lambda one: one.training.last_loss, "less"),
)


def compare_results(reports: Sequence[Results]) -> tuple[Measurement, ...]:
    """Compare what all, or some, of the reports have measured."""
    sizes = tuple(None if results.image_bytes is None else float(results.image_bytes) for results in reports)
    built = tuple(results.is_built for results in reports)
    whole = [
        Measurement(name="image size", unit="B", values=sizes, better="less", complete=built),
        Measurement(
            name="build", unit="s", values=tuple(one.build_seconds for one in reports), better="less", complete=built
        ),
        Measurement(
            name="import torch",
            unit="s",
            values=tuple(map(find_import_seconds, reports)),
            better="less",
            complete=built,
        ),
    ]
    rows = [*whole, *(row for key in _keys(reports) for row in _workload(key, reports))]
    return tuple(row for row in rows if any(value is not None for value in row.values))


def find_differences(reports: Sequence[Results]) -> tuple[Difference, ...]:
    """Find the facts that differ, without those that always do (the file, when it was made)."""
    described = [describe_results(results) for results in reports]
    own = ("image", "image size", "image SHA-256", "started")
    names = dict.fromkeys(name for facts in described for name in facts if name not in own)
    found = [Difference(name=name, values=tuple(facts.get(name, "-") for facts in described)) for name in names]
    packages = dict.fromkeys(name for results in reports for name in results.packages)
    if all(results.packages for results in reports):
        found += [
            Difference(name=f"package {name}", values=tuple(results.packages.get(name) or "-" for results in reports))
            for name in packages
        ]
    return tuple(difference for difference in found if len(set(difference.values)) > 1)


def tabulate_comparison(reports: Sequence[Results], *, detail: bool | None = None) -> ResultTable:
    """Tabulate the comparison: a row for each measurement, a column for each report, then the ratios."""
    rows = [row for row in compare_results(reports) if detail in (None, row.detail)]
    names = LETTERS[: len(reports)]
    head = ("", *names, *(f"{name}/A" for name in names[1:]))
    cells = tuple(
        (row.name, *(_format_measurement(row.unit, value) for value in row.values), *map(format_ratio, row.ratios))
        for row in rows
    )
    return ResultTable(name="Comparison", head=head, rows=cells, right=frozenset(range(1, len(head))))


def _keys(reports: Sequence[Results]) -> Iterable[tuple[str, str, int]]:
    return dict.fromkeys((one.shape, one.name, one.world) for results in reports for one in results.workloads)


def _workload(key: tuple[str, str, int], reports: Sequence[Results]) -> Iterator[Measurement]:
    found = [
        next((one for one in results.workloads if (one.shape, one.name, one.world) == key), None) for results in reports
    ]
    title = next(one.title for one in found if one is not None)
    complete = tuple(
        results.is_built and one is not None and not one.error for results, one in zip(reports, found, strict=True)
    )
    for name, unit, measure, better in METRICS:
        values = tuple(None if one is None else measure(one) for one in found)
        yield Measurement(name=f"{title}: {name}", unit=unit, values=values, better=better, complete=complete)
    sweeps = [{transfer.size: transfer.busbw for transfer in one.sweep} if one else {} for one in found]
    named = {transfer.size for one in found if one is not None and (transfer := choose_key_transfer(one)) is not None}
    for count in sorted({count for sweep in sweeps for count in sweep}):
        values = tuple(sweep.get(count) for sweep in sweeps)
        name, detail = f"{title}: busbw at {format_size(count)}", count not in named
        yield Measurement(name=name, unit="GB/s", values=values, better="more", detail=detail, complete=complete)


def _format_measurement(unit: str, value: float | None) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return format_duration(value)
    if unit == "B":
        return format_bytes(round(value))
    return f"{format_number(value)} {unit}".strip()
