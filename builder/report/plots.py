"""The plots of a page, each with its legend and its numbers as a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from builder.model.results import Results, WorkloadResult
from builder.report import svg as axes
from builder.report.bars import Bar, bar_plot
from builder.report.metrics import OTHER, PARTS, parts, shared_cores, throughput
from builder.report.svg import COLORS, Series, line_plot
from builder.report.tables import Table, assign_letters
from builder.report.units import duration, figure, size

BAR_LIMIT = 14
KNOWN = tuple(dict.fromkeys(PARTS.values()))
_FLOOR = re.compile(r">= (0\.\d+)")
TABLE_LIMIT = 24  # rows of a curve in its table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One plot as SVG, what its colours mean, and its numbers as a table."""

    name: str
    note: str
    svg: str
    table: Table
    legend: tuple[tuple[str, str], ...] = ()  # class of the style sheet, label


def draw_figures(reports: Sequence[Results]) -> tuple[Figure, ...]:
    """Draw every plot that the results have the numbers for."""
    plots = (draw_loss, draw_accuracy, draw_bandwidth, draw_scaling, draw_step_times, draw_workload_times)
    return tuple(found for draw in plots if (found := draw(reports)) is not None)


def draw_loss(reports: Sequence[Results]) -> Figure | None:
    """Draw the training loss over the steps with its moving mean."""
    chosen = [(title, one) for title, one in _each(reports) if len(one.training.losses) > 1]
    series: list[Series] = []
    rows = []
    for color, (title, one) in enumerate(chosen):
        curve = one.training.losses
        stride = max(1, round((one.training.steps or len(curve)) / len(curve)))
        mean = smooth(curve)
        at = [float(index * stride) for index in range(len(curve))]
        series.append(Series(label="", points=tuple(zip(at, curve, strict=True)), color=color, faint=True))
        series.append(Series(label=title, points=tuple(zip(at, mean, strict=True)), color=color))
        every = max(1, len(curve) // max(2, TABLE_LIMIT // len(chosen)))
        rows += [(title, f"{at[i]:.0f}", figure(curve[i]), figure(mean[i])) for i in range(0, len(curve), every)]
    if not series:
        return None
    x = axes.linear([place for one in series for place, _ in one.points], title="optimizer step")
    y = axes.linear([value for one in series for _, value in one.points], title="loss")
    name, note = "Training loss", "Thin: every step. Thick: moving mean."
    table = Table(name=name, head=("workload", "step", "loss", "mean"), rows=tuple(rows), right=frozenset({1, 2, 3}))
    svg = line_plot(sorted(series, key=lambda one: not one.faint), x=x, y=y, name=name, description=note)
    return Figure(name=name, note=note, svg=svg, table=table, legend=_legend(series))


def draw_accuracy(reports: Sequence[Results]) -> Figure | None:
    """Draw the accuracy after each epoch, or at the end where only that is known, with its floor."""
    chosen = [(title, one) for title, one in _each(reports) if one.training.accuracy is not None]
    if not chosen:
        return None
    if all(len(one.training.accuracies) > 1 for _, one in chosen):
        return _draw_accuracy_by_epoch(chosen)
    rows, bars = [], []
    for title, one in chosen[:BAR_LIMIT]:
        value, floor = one.training.accuracy or 0.0, floor_of(one)
        bars.append(Bar(label=title, parts=(("accuracy", value),), floor=floor))
        rows.append((title, figure(value, digits=4), "-" if floor is None else figure(floor)))
    x = axes.linear([0.0, 1.0], title="share of test images classified correctly")
    note = "On test images after the training; the dashed mark is the least that passes."
    svg = bar_plot(bars, x=x, colors={"accuracy": 0}, name="Accuracy", description=note, written=figure)
    table = Table(name="Accuracy", head=("workload", "accuracy", "floor"), rows=tuple(rows), right=frozenset({1, 2}))
    return Figure(name="Accuracy", note=note, svg=svg, table=table)


def _draw_accuracy_by_epoch(chosen: Sequence[tuple[str, WorkloadResult]]) -> Figure:
    series: list[Series] = []
    rows = []
    for color, (title, one) in enumerate(chosen):
        points = tuple((float(epoch), value) for epoch, value in enumerate(one.training.accuracies, start=1))
        tips = tuple(f"{title}, epoch {epoch:.0f}: {figure(value, digits=4)}" for epoch, value in points)
        series.append(Series(label=title, points=points, tips=tips, color=color))
        rows += [(title, f"{epoch:.0f}", figure(value, digits=4)) for epoch, value in points]
    ends = [place for one in series for place, _ in one.points]
    floors = [floor for _, one in chosen if (floor := floor_of(one)) is not None]
    if floors:
        level = tuple((place, max(floors)) for place in (min(ends), max(ends)))
        series.append(Series(label=f"floor {figure(max(floors))}", points=level, color=COLORS - 1, dashed=True))
    x = axes.linear(ends, title="epoch", zero=False, most=max(1, min(6, round(max(ends) - min(ends)))))
    low = 0.98 * min(value for one in series for _, value in one.points)
    y = axes.linear(
        [low, max(value for one in series for _, value in one.points)], title="accuracy", zero=False, top=1.0
    )
    note = "On test images after each epoch; the dashed line is the least that passes."
    svg = line_plot(series, x=x, y=y, name="Accuracy", description=note)
    table = Table(name="Accuracy", head=("workload", "epoch", "accuracy"), rows=tuple(rows), right=frozenset({1, 2}))
    return Figure(name="Accuracy", note=note, svg=svg, table=table, legend=_legend(series))


def draw_bandwidth(reports: Sequence[Results]) -> Figure | None:
    """Draw the bus bandwidth over the message size, both logarithmic, with the site's floors."""
    series: list[Series] = []
    floors: list[tuple[int, float]] = []
    rows = []
    for title, one in _each(reports):
        known = [(step, step.busbw) for step in one.sweep if step.busbw is not None and step.busbw > 0]
        if not known:
            continue
        color = len(series) % (COLORS - 1)
        tips = tuple(f"{title}, {size(step.size)}: {figure(value)} GB/s" for step, value in known)
        points = tuple((float(step.size), value) for step, value in known)
        series.append(Series(label=title, points=points, tips=tips, color=color))
        floors += one.floors
        rows += [
            (title, size(step.size), figure(value), figure(step.algbw), _format_floor(one, step.size))
            for step, value in known
        ]
    if not series:
        return None
    series += [_floor(at, value) for at, value in dict.fromkeys(floors)]
    places = [place for one in series for place, _ in one.points if not one.dashed]
    x = axes.doublings(places, title="message size", written=size)
    y = axes.decades([value for one in series for _, value in one.points], title="bus bandwidth, GB/s")
    name, note = "Bandwidth over size", "Allreduce; both axes logarithmic. Dashed: what the site expects at that size."
    head = ("workload", "size", "busbw GB/s", "algbw GB/s", "floor GB/s")
    table = Table(name=name, head=head, rows=tuple(rows), right=frozenset({1, 2, 3, 4}))
    svg = line_plot(series, x=x, y=y, name=name, description=note)
    return Figure(name=name, note=note, svg=svg, table=table, legend=_legend(series))


def _floor(at: int, value: float) -> Series:
    """A floor applies to one size; it is drawn wider than a point to be visible."""
    label = f"floor {figure(value)} GB/s at {size(at)}"
    return Series(label=label, points=((at / 8, value), (at * 8.0, value)), color=COLORS - 1, dashed=True)


def _format_floor(one: WorkloadResult, count: int) -> str:
    return figure(dict(one.floors).get(count))


def draw_scaling(reports: Sequence[Results]) -> Figure | None:
    """Draw the training throughput over ranks, and the smallest run's in proportion; no run that shared its cores."""
    series: list[Series] = []
    rows = []
    for color, (letter, results) in enumerate(zip(assign_letters(reports), reports, strict=True)):
        runs = _scaling_runs(results, shared=False)
        if not runs:
            continue
        points = tuple((float(world), speed) for world, speed, _ in runs)
        tips = tuple(f"{one.title}: {figure(speed)} images a second" for _, speed, one in runs)
        title = f"{letter} measured".strip()
        series.append(Series(label=title, points=points, tips=tips, color=color))
        ideal = tuple((world, points[0][1] * world / points[0][0]) for world, _ in (points[0], points[-1]))
        series.append(Series(label=f"{letter} in proportion".strip(), points=ideal, color=color, dashed=True))
        for world, speed, one in runs:
            share = speed / (points[0][1] * world / points[0][0])
            rows.append((f"{letter} {one.title}".strip(), str(world), figure(speed), f"{share:.0%}"))
    if not series:
        return None
    x = axes.doublings([place for one in series for place, _ in one.points], title="ranks")
    y = axes.decades([value for one in series for _, value in one.points], title="images a second")
    name, note = "Scaling over ranks", "Training throughput of all ranks together; both axes logarithmic."
    head = ("workload", "ranks", "images/s", "of proportion")
    table = Table(name=name, head=head, rows=tuple(rows), right=frozenset({1, 2, 3}))
    svg = line_plot(series, x=x, y=y, name=name, description=note)
    return Figure(name=name, note=note, svg=svg, table=table, legend=_legend(series))


def explain_missing(reports: Sequence[Results]) -> tuple[str, ...]:
    """Say why there is no scaling figure where ranks on the same cores are the reason."""
    found = []
    for letter, results in zip(assign_letters(reports), reports, strict=True):
        if _scaling_runs(results, shared=False):
            continue
        shared = [(one.title, node) for _, _, one in _scaling_runs(results, shared=True) if (node := shared_cores(one))]
        if shared:
            titles, node = ", ".join(title for title, _ in shared), shared[0][1]
            lead = f"{letter}: no" if letter else "No"
            found.append(f"{lead} scaling over ranks: the ranks of {titles} shared the same CPU cores of {node}.")
    return tuple(found)


def _scaling_runs(results: Results, *, shared: bool) -> list[tuple[int, float, WorkloadResult]]:
    """Ranks and throughput of each training, with or without those that shared cores; empty below two sizes."""
    known = [one for one in results.workloads if shared or not shared_cores(one)]
    measured = [(one.world, throughput(one) or 0.0, one) for one in known]
    runs = sorted((run for run in measured if run[1] > 0), key=lambda run: run[:2])
    return runs if len({world for world, _, _ in runs}) > 1 else []


def draw_step_times(reports: Sequence[Results]) -> Figure | None:
    """Draw the times of the builds' steps and of the jobs."""
    bars = []
    for letter, results in zip(assign_letters(reports), reports, strict=True):
        steps = tuple((stage.name, stage.seconds) for stage in results.stages if stage.kind == "step" and stage.seconds)
        if steps:
            bars.append(Bar(label=f"{letter} build and smoke test".strip(), parts=steps))
        for stage in results.stages:
            if stage.kind == "job":
                waited = (("in the queue", stage.queued),) if stage.queued else ()
                bars.append(Bar(label=f"{letter} {stage.name}".strip(), parts=(*waited, ("running", stage.seconds))))
    return _draw_times("Time by step", "Steps of the build, and jobs.", bars)


def draw_workload_times(reports: Sequence[Results]) -> Figure | None:
    """Draw the parts of each workload's time."""
    bars = [Bar(label=title, parts=found) for title, one in _each(reports) if (found := parts(one))]
    return _draw_times("Time by workload", "Parts of each workload's time.", bars)


def _draw_times(name: str, note: str, bars: Sequence[Bar]) -> Figure | None:
    known = [bar for bar in bars if bar.total > 0]
    if not known:
        return None
    least = sorted((bar.total for bar in known), reverse=True)[:BAR_LIMIT][-1]
    bars = [bar for bar in known if bar.total >= least][:BAR_LIMIT]
    if len(bars) < len(known):
        note += f" The {len(bars)} longest of {len(known)}."
    names = dict.fromkeys(part for bar in bars for part, _ in bar.parts)
    order = sorted(names, key=lambda part: (part == OTHER, KNOWN.index(part) if part in KNOWN else 0))
    colors = {part: COLORS - 1 if part == OTHER else number % (COLORS - 1) for number, part in enumerate(order)}
    x = axes.linear([bar.total for bar in bars], title="seconds")
    rows = tuple(
        (bar.label, part, duration(seconds), f"{seconds / bar.total:.0%}")
        for bar in bars
        for part, seconds in bar.parts
    )
    table = Table(name=name, head=("", "part", "time", "share"), rows=rows, right=frozenset({2, 3}))
    svg = bar_plot(bars, x=x, colors=colors, name=name, description=note)
    legend = tuple((f"c{color}", part) for part, color in colors.items())
    return Figure(name=name, note=note, svg=svg, table=table, legend=legend)


def smooth(curve: Sequence[float]) -> tuple[float, ...]:
    """The moving mean over a fifteenth of the curve."""
    reach = max(1, len(curve) // 30)
    windows = (curve[max(0, index - reach) : index + reach + 1] for index in range(len(curve)))
    return tuple(sum(window) / len(window) for window in windows)


def floor_of(one: WorkloadResult) -> float | None:
    """The least accuracy that passes, as its check states it."""
    for check in one.checks:
        matched = _FLOOR.fullmatch(check.expected) if check.name == "accuracy" else None
        if matched is not None:
            return float(matched[1])
    return None


def _each(reports: Sequence[Results]) -> Iterator[tuple[str, WorkloadResult]]:
    """Yield every workload with its title, after its report's letter where there are several."""
    for letter, results in zip(assign_letters(reports), reports, strict=True):
        for workload in results.workloads:
            yield f"{letter} {workload.title}".strip(), workload


def _legend(series: Sequence[Series]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"c{one.color % COLORS}" + (" dashed" if one.dashed else ""), one.label) for one in series if one.label
    )
