"""The plots of a page, each with its legend and its numbers as a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from builder.model.results import Results, WorkloadResult
from builder.model.text import format_duration, format_number
from builder.report import svg as axes
from builder.report.svg import (
    COLORS,
    WIDTH,
    Axis,
    Series,
    draw_lines,
    make_element,
    make_label,
    make_tooltip,
)
from builder.report.tables import (
    OTHER,
    PARTS,
    ResultTable,
    assign_letters,
    compute_throughput,
    find_shared_cores,
    split_time,
)
from builder.smoke.options import format_size

ROW, TOP, BOTTOM, LEFT, RIGHT = 42, 4, 42, 2, 14


@dataclass(frozen=True, kw_only=True)
class StackedBar:
    """One bar: its label and its parts in order."""

    label: str
    parts: tuple[tuple[str, float], ...]
    floor: float | None = None  # a mark that it must reach

    @property
    def total(self) -> float:
        """The sum of its parts."""
        return sum(seconds for _, seconds in self.parts)


def draw_bars(
    bars: Sequence[StackedBar],
    *,
    x: Axis,
    colors: Mapping[str, int],
    name: str,
    description: str,
    written: Callable[[float], str] = format_duration,
) -> str:
    """Draw a bar a row, its label above it; a part of one name has one colour in all of them."""
    height = TOP + ROW * len(bars) + BOTTOM
    bottom = height - BOTTOM
    parts = [make_tooltip(name), make_element("desc", escape(description))]
    for at, tick in x.ticks:
        place = _x(x, at)
        kind = "tick end" if place > WIDTH - RIGHT - 20 else "tick mid" if place > LEFT + 6 else "tick"
        parts.append(make_element("line", x1=place, x2=place, y1=TOP, y2=bottom + 4, class_="grid"))
        parts.append(make_label(tick, x=place, y=bottom + 17, class_=kind))
    for number, bar in enumerate(bars):
        parts += _bar(bar, top=float(TOP + ROW * number), x=x, colors=colors, written=written)
    parts.append(make_label(x.title, x=(LEFT + WIDTH - RIGHT) / 2, y=height - 6, class_="axis mid"))
    return make_element("svg", *parts, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=f"{name}. {description}")


def _bar(
    bar: StackedBar, *, top: float, x: Axis, colors: Mapping[str, int], written: Callable[[float], str]
) -> list[str]:
    shown = bar.label if len(bar.label) <= 40 else bar.label[:37] + "..."
    parts = [
        make_label(shown, x=LEFT, y=top + 14, class_="row"),
        make_label(written(bar.total), x=WIDTH - RIGHT, y=top + 14, class_="row end"),
    ]
    sum_before = 0.0
    for name, seconds in bar.parts:
        start, end = _x(x, sum_before), _x(x, sum_before + seconds)
        sum_before += seconds
        tip = make_tooltip(f"{bar.label}, {name}: {written(seconds)}")
        width = max(
            end - start - 1.0, 0.5
        )  # a gap separates neighbours for readers who cannot tell their colours apart
        parts.append(
            make_element("rect", tip, x=start, y=top + 20, width=width, height=16, class_=f"c{colors[name] % COLORS}")
        )
    if bar.floor is not None:
        place = _x(x, bar.floor)
        tip = make_tooltip(f"floor {written(bar.floor)}")
        parts.append(make_element("line", tip, x1=place, x2=place, y1=top + 16, y2=top + 40, class_="floor"))
    return parts


def _x(axis: Axis, number: float) -> float:
    return axis.project(number, start=float(LEFT), end=float(WIDTH - RIGHT))


BAR_LIMIT = 14
KNOWN_PARTS = tuple(dict.fromkeys(PARTS.values()))
_FLOOR = re.compile(r">= (0\.\d+)")
TABLE_LIMIT = 24  # rows of a curve in its table


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One plot as SVG, what its colours mean, and its numbers as a table."""

    name: str
    note: str
    svg: str
    table: ResultTable
    legend: tuple[tuple[str, str], ...] = ()  # class of the style sheet, label


def make_plots(reports: Sequence[Results]) -> tuple[Plot, ...]:
    """Draw every plot that the results have the numbers for."""
    plots = (plot_loss, plot_accuracy, plot_bandwidth, plot_scaling, plot_step_times, plot_workload_times)
    return tuple(found for draw in plots if (found := draw(reports)) is not None)


def plot_loss(reports: Sequence[Results]) -> Plot | None:
    """Draw the training loss over the steps with its moving mean."""
    chosen = [(title, one) for title, one in _iterate_workloads(reports) if len(one.training.losses) > 1]
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
        rows += [
            (title, f"{at[i]:.0f}", format_number(curve[i]), format_number(mean[i]))
            for i in range(0, len(curve), every)
        ]
    if not series:
        return None
    x = axes.make_linear_axis([place for one in series for place, _ in one.points], title="optimizer step")
    y = axes.make_linear_axis([value for one in series for _, value in one.points], title="loss")
    name, note = "Training loss", "Thin: every step. Thick: moving mean."
    table = ResultTable(
        name=name, head=("workload", "step", "loss", "mean"), rows=tuple(rows), right=frozenset({1, 2, 3})
    )
    svg = draw_lines(sorted(series, key=lambda one: not one.faint), x=x, y=y, name=name, description=note)
    return Plot(name=name, note=note, svg=svg, table=table, legend=_legend(series))


def plot_accuracy(reports: Sequence[Results]) -> Plot | None:
    """Draw the accuracy after each epoch, or at the end where only that is known, with its floor."""
    chosen = [(title, one) for title, one in _iterate_workloads(reports) if one.training.accuracy is not None]
    if not chosen:
        return None
    if all(len(one.training.accuracies) > 1 for _, one in chosen):
        return _draw_accuracy_by_epoch(chosen)
    rows, bars = [], []
    for title, one in chosen[:BAR_LIMIT]:
        value, floor = one.training.accuracy or 0.0, find_floor(one)
        bars.append(StackedBar(label=title, parts=(("accuracy", value),), floor=floor))
        rows.append((title, format_number(value, digits=4), "-" if floor is None else format_number(floor)))
    x = axes.make_linear_axis([0.0, 1.0], title="share of test images classified correctly")
    note = "On test images after the training; the dashed mark is the least that passes."
    svg = draw_bars(bars, x=x, colors={"accuracy": 0}, name="Accuracy", description=note, written=format_number)
    table = ResultTable(
        name="Accuracy", head=("workload", "accuracy", "floor"), rows=tuple(rows), right=frozenset({1, 2})
    )
    return Plot(name="Accuracy", note=note, svg=svg, table=table)


def _draw_accuracy_by_epoch(chosen: Sequence[tuple[str, WorkloadResult]]) -> Plot:
    series: list[Series] = []
    rows = []
    for color, (title, one) in enumerate(chosen):
        points = tuple((float(epoch), value) for epoch, value in enumerate(one.training.accuracies, start=1))
        tips = tuple(f"{title}, epoch {epoch:.0f}: {format_number(value, digits=4)}" for epoch, value in points)
        series.append(Series(label=title, points=points, tips=tips, color=color))
        rows += [(title, f"{epoch:.0f}", format_number(value, digits=4)) for epoch, value in points]
    ends = [place for one in series for place, _ in one.points]
    floors = [floor for _, one in chosen if (floor := find_floor(one)) is not None]
    if floors:
        level = tuple((place, max(floors)) for place in (min(ends), max(ends)))
        series.append(Series(label=f"floor {format_number(max(floors))}", points=level, color=COLORS - 1, dashed=True))
    x = axes.make_linear_axis(ends, title="epoch", zero=False, most=max(1, min(6, round(max(ends) - min(ends)))))
    low = 0.98 * min(value for one in series for _, value in one.points)
    y = axes.make_linear_axis(
        [low, max(value for one in series for _, value in one.points)], title="accuracy", zero=False, top=1.0
    )
    note = "On test images after each epoch; the dashed line is the least that passes."
    svg = draw_lines(series, x=x, y=y, name="Accuracy", description=note)
    table = ResultTable(
        name="Accuracy", head=("workload", "epoch", "accuracy"), rows=tuple(rows), right=frozenset({1, 2})
    )
    return Plot(name="Accuracy", note=note, svg=svg, table=table, legend=_legend(series))


def plot_bandwidth(reports: Sequence[Results]) -> Plot | None:
    """Draw the bus bandwidth over the message size, both logarithmic, with the site's floors."""
    series: list[Series] = []
    floors: list[tuple[int, float]] = []
    rows = []
    for title, one in _iterate_workloads(reports):
        known = [(step, step.busbw) for step in one.sweep if step.busbw is not None and step.busbw > 0]
        if not known:
            continue
        color = len(series) % (COLORS - 1)
        tips = tuple(f"{title}, {format_size(step.size)}: {format_number(value)} GB/s" for step, value in known)
        points = tuple((float(step.size), value) for step, value in known)
        series.append(Series(label=title, points=points, tips=tips, color=color))
        floors += one.floors
        rows += [
            (
                title,
                format_size(step.size),
                format_number(value),
                format_number(step.algbw),
                format_number(dict(one.floors).get(step.size)),
            )
            for step, value in known
        ]
    if not series:
        return None
    series += [_floor(at, value) for at, value in dict.fromkeys(floors)]
    places = [place for one in series for place, _ in one.points if not one.dashed]
    x = axes.make_doubling_axis(places, title="message size", written=format_size)
    y = axes.make_log_axis([value for one in series for _, value in one.points], title="bus bandwidth, GB/s")
    name, note = "Bandwidth over size", "Allreduce; both axes logarithmic. Dashed: what the site expects at that size."
    head = ("workload", "size", "busbw GB/s", "algbw GB/s", "floor GB/s")
    table = ResultTable(name=name, head=head, rows=tuple(rows), right=frozenset({1, 2, 3, 4}))
    svg = draw_lines(series, x=x, y=y, name=name, description=note)
    return Plot(name=name, note=note, svg=svg, table=table, legend=_legend(series))


def _floor(at: int, value: float) -> Series:
    """A floor applies to one size; it is drawn wider than a point to be visible."""
    label = f"floor {format_number(value)} GB/s at {format_size(at)}"
    return Series(label=label, points=((at / 8, value), (at * 8.0, value)), color=COLORS - 1, dashed=True)


def plot_scaling(reports: Sequence[Results]) -> Plot | None:
    """Draw the training throughput over ranks, and the smallest run's in proportion; no run that shared its cores."""
    series: list[Series] = []
    rows = []
    for color, (letter, results) in enumerate(zip(assign_letters(reports), reports, strict=True)):
        runs = _scaling_runs(results, shared=False)
        if not runs:
            continue
        points = tuple((float(world), speed) for world, speed, _ in runs)
        tips = tuple(f"{one.title}: {format_number(speed)} images a second" for _, speed, one in runs)
        title = f"{letter} measured".strip()
        series.append(Series(label=title, points=points, tips=tips, color=color))
        ideal = tuple((world, points[0][1] * world / points[0][0]) for world, _ in (points[0], points[-1]))
        series.append(Series(label=f"{letter} in proportion".strip(), points=ideal, color=color, dashed=True))
        for world, speed, one in runs:
            share = speed / (points[0][1] * world / points[0][0])
            rows.append((f"{letter} {one.title}".strip(), str(world), format_number(speed), f"{share:.0%}"))
    if not series:
        return None
    x = axes.make_doubling_axis([place for one in series for place, _ in one.points], title="ranks")
    y = axes.make_log_axis([value for one in series for _, value in one.points], title="images a second")
    name, note = "Scaling over ranks", "Training throughput of all ranks together; both axes logarithmic."
    head = ("workload", "ranks", "images/s", "of proportion")
    table = ResultTable(name=name, head=head, rows=tuple(rows), right=frozenset({1, 2, 3}))
    svg = draw_lines(series, x=x, y=y, name=name, description=note)
    return Plot(name=name, note=note, svg=svg, table=table, legend=_legend(series))


def explain_missing(reports: Sequence[Results]) -> tuple[str, ...]:
    """Say why there is no scaling figure where ranks on the same cores are the reason."""
    found = []
    for letter, results in zip(assign_letters(reports), reports, strict=True):
        if _scaling_runs(results, shared=False):
            continue
        shared = [
            (one.title, node) for _, _, one in _scaling_runs(results, shared=True) if (node := find_shared_cores(one))
        ]
        if shared:
            titles, node = ", ".join(title for title, _ in shared), shared[0][1]
            lead = f"{letter}: no" if letter else "No"
            found.append(f"{lead} scaling over ranks: the ranks of {titles} shared the same CPU cores of {node}.")
    return tuple(found)


def _scaling_runs(results: Results, *, shared: bool) -> list[tuple[int, float, WorkloadResult]]:
    """Ranks and throughput of each training, with or without those that shared cores; empty below two sizes."""
    known = [one for one in results.workloads if shared or not find_shared_cores(one)]
    measured = [(one.world, compute_throughput(one) or 0.0, one) for one in known]
    runs = sorted((run for run in measured if run[1] > 0), key=lambda run: run[:2])
    return runs if len({world for world, _, _ in runs}) > 1 else []


def plot_step_times(reports: Sequence[Results]) -> Plot | None:
    """Draw the times of the builds' steps and of the jobs."""
    bars = []
    for letter, results in zip(assign_letters(reports), reports, strict=True):
        steps = tuple((stage.name, stage.seconds) for stage in results.stages if stage.kind == "step" and stage.seconds)
        if steps:
            bars.append(StackedBar(label=f"{letter} build and smoke test".strip(), parts=steps))
        for stage in results.stages:
            if stage.kind == "job":
                waited = (("in the queue", stage.queued),) if stage.queued else ()
                bars.append(
                    StackedBar(label=f"{letter} {stage.name}".strip(), parts=(*waited, ("running", stage.seconds)))
                )
    return _draw_times("Time by step", "Steps of the build, and jobs.", bars)


def plot_workload_times(reports: Sequence[Results]) -> Plot | None:
    """Draw the parts of each workload's time."""
    bars = [
        StackedBar(label=title, parts=found) for title, one in _iterate_workloads(reports) if (found := split_time(one))
    ]
    return _draw_times("Time by workload", "Parts of each workload's time.", bars)


def _draw_times(name: str, note: str, bars: Sequence[StackedBar]) -> Plot | None:
    known = [bar for bar in bars if bar.total > 0]
    if not known:
        return None
    least = sorted((bar.total for bar in known), reverse=True)[:BAR_LIMIT][-1]
    bars = [bar for bar in known if bar.total >= least][:BAR_LIMIT]
    if len(bars) < len(known):
        note += f" The {len(bars)} longest of {len(known)}."
    names = dict.fromkeys(part for bar in bars for part, _ in bar.parts)
    order = sorted(names, key=lambda part: (part == OTHER, KNOWN_PARTS.index(part) if part in KNOWN_PARTS else 0))
    colors = {part: COLORS - 1 if part == OTHER else number % (COLORS - 1) for number, part in enumerate(order)}
    x = axes.make_linear_axis([bar.total for bar in bars], title="seconds")
    rows = tuple(
        (bar.label, part, format_duration(seconds), f"{seconds / bar.total:.0%}")
        for bar in bars
        for part, seconds in bar.parts
    )
    table = ResultTable(name=name, head=("", "part", "time", "share"), rows=rows, right=frozenset({2, 3}))
    svg = draw_bars(bars, x=x, colors=colors, name=name, description=note)
    legend = tuple((f"c{color}", part) for part, color in colors.items())
    return Plot(name=name, note=note, svg=svg, table=table, legend=legend)


def smooth(curve: Sequence[float]) -> tuple[float, ...]:
    """The moving mean over a fifteenth of the curve."""
    reach = max(1, len(curve) // 30)
    windows = (curve[max(0, index - reach) : index + reach + 1] for index in range(len(curve)))
    return tuple(sum(window) / len(window) for window in windows)


def find_floor(one: WorkloadResult) -> float | None:
    """The least accuracy that passes, as its check states it."""
    for check in one.checks:
        matched = _FLOOR.fullmatch(check.expected) if check.name == "accuracy" else None
        if matched is not None:
            return float(matched[1])
    return None


def _iterate_workloads(reports: Sequence[Results]) -> Iterator[tuple[str, WorkloadResult]]:
    """Yield every workload with its title, after its report's letter where there are several."""
    for letter, results in zip(assign_letters(reports), reports, strict=True):
        for workload in results.workloads:
            yield f"{letter} {workload.title}".strip(), workload


def _legend(series: Sequence[Series]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"c{one.color % COLORS}" + (" dashed" if one.dashed else ""), one.label) for one in series if one.label
    )
