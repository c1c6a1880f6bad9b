"""Words, scales and what is read of foreign JSON."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.rows import rows

from builder.model.results import read_workload_result
from builder.model.text import (
    format_bytes,
    format_duration,
    format_number,
    format_ratio,
    format_tick,
    to_integer,
    to_number,
    to_numbers,
    to_text,
)
from builder.report import svg
from builder.report.plots import smooth
from builder.report.svg import make_element, make_label, make_path
from builder.smoke.check_probe import format_cores
from builder.smoke.options import format_size


@rows(
    ("value", "written"),
    [(None, "-"), (0, "0"), (0.98134, "0.981"), (1949.4, "1,949"), (91.64, "91.6"), (-0.5, "-0.500"),
     (1e-9, "1.00e-09"), (353e6, "353,000,000"), (999.96, "1,000")],
)  # fmt: skip
def test_figures_have_three_digits(value: float | None, written: str) -> None:
    assert format_number(value) == written


@rows(
    ("seconds", "written"),
    [(None, "-"), (0.0, "0 s"), (0.0321, "32.1 ms"), (4.06, "4.1 s"), (59.97, "1 min 00 s"), (125.0, "2 min 05 s"),
     (3599.6, "1 h 00 min"), (4205.0, "1 h 10 min")],
)  # fmt: skip
def test_durations_have_the_unit_a_reader_would_choose(seconds: float | None, written: str) -> None:
    assert format_duration(seconds) == written


def test_sizes() -> None:
    assert [format_size(1 << power) for power in (3, 15, 27, 32)] == ["8 B", "32 KiB", "128 MiB", "4 GiB"]
    assert format_size(5 << 19) == "2560 KiB"
    assert (format_bytes(352919552), format_bytes(4352919552), format_bytes(None)) == ("353 MB", "4.35 GB", "-")
    assert (format_ratio(0.7519), format_ratio(None)) == ("0.752×", "-")
    assert [format_tick(value) for value in (0.25, 100.0, 2e6, 0.0)] == ["0.25", "100", "2e6", "0"]


@rows("values", [[0.0, 2.3], [0.5, 0.5], [0.0], [1e-9, 3e-9], [12345.0, 99999.0], []])
def test_a_linear_axis_holds_its_values_between_round_ticks(values: list[float]) -> None:
    axis = svg.make_linear_axis(values, title="x")
    assert axis.low <= min(values, default=0) <= max(values, default=0) <= axis.high * (1 + 1e-9)
    assert 2 <= len(axis.ticks) <= 8
    assert axis.project(axis.low, start=10.0, end=20.0) == 10.0
    assert axis.project(axis.high, start=10.0, end=20.0) == pytest.approx(20.0)


@rows("values", [[0.07, 92.0], [1.0], [85.0, 92.0], [1e-6, 1e6], [], [0.0, -1.0]])
def test_a_logarithmic_axis_holds_its_values(values: list[float]) -> None:
    axis = svg.make_log_axis(values, title="y")
    known = [value for value in values if value > 0]
    assert axis.low <= min(known, default=axis.low)
    assert axis.high >= max(known, default=axis.high)
    assert 2 <= len(axis.ticks) <= 8
    middle = math.sqrt(axis.low * axis.high)
    assert axis.project(middle, start=0.0, end=1.0) == pytest.approx(0.5)
    assert axis.project(-3.0, start=0.0, end=1.0) == 0.0


def test_ranks_and_sizes_double() -> None:
    axis = svg.make_doubling_axis([1.0, 2.0, 16.0], title="ranks")
    assert [written for _, written in axis.ticks] == ["1", "2", "4", "8", "16"]
    axis = svg.make_doubling_axis([2.0**15, 2.0**32], title="size", written=format_size)
    assert axis.ticks[0][1] == "32 KiB"
    assert len(axis.ticks) <= 5
    assert svg.make_doubling_axis([4.0], title="one").high == 8.0


def test_a_mean_is_as_long_as_its_curve() -> None:
    assert smooth((1.0,)) == (1.0,)
    assert smooth((0.0, 3.0, 0.0)) == (1.5, 1.0, 1.5)


def test_markup_is_escaped() -> None:
    assert make_label("<b>&", x=1.25) == '<text x="1.2">&lt;b&gt;&amp;</text>'
    assert make_element("g", class_='"><script>') == '<g class="&quot;&gt;&lt;script&gt;"/>'
    assert make_path([(1.0, 2.0), (3.26, 4.0)]) == "M1,2L3.3,4"


@rows("value", [None, True, "1", [], {}, math.nan, math.inf, 10**400])
def test_what_is_no_number_is_none(value: Any) -> None:
    assert to_number(value) is None


def test_plain_values() -> None:
    assert (to_number(3), to_integer(3), to_integer(3.0), to_integer(10**16)) == (3.0, 3, None, None)
    assert to_text(10**5000) == "a huge number"
    assert to_text("a\x00b\nc\ud800") == "a\\x00b\\nc\\ud800"
    assert len(to_text("x" * 1000)) == 400
    assert to_numbers([1, "2", None, math.nan, 3.5]) == (1.0, 3.5)
    assert format_cores(sorted({3, 1, 2, 8, 10, 9})) == "1-3,8-10"


HOSTILE: tuple[Any, ...] = (None, True, -1, 10**400, 1e308, "text", "\ud800", [], [[]], [None], {}, {"": {}}, math.nan)
FIELDS = (
    "workload", "verdict", "error", "seconds", "host", "torch", "device", "checks", "training", "accuracy",
    "accuracies", "ranks", "sweep", "floors", "world", "backend", "pi", "expected", "imports", "data",
)  # fmt: skip


@rows("field", FIELDS)
def test_any_value_in_any_place_is_borne(field: str) -> None:
    for value in HOSTILE:
        for wrapped in (value, [value], {"type": value, "total": value, "ranks": value, "floors": value},
                        [{"rank": 1, "bytes": value, "name": value, "affinity": value, "seconds": value}]):  # fmt: skip
            found = read_workload_result({"verdict": "pass", field: wrapped}, name="x")
            assert found.verdict in ("pass", "FAIL")
            assert found.world >= 1


def test_a_result_that_is_none_fails() -> None:
    for value in (None, 3, [], "pass"):
        assert read_workload_result(value, name="ddp").verdict == "FAIL"
    assert read_workload_result({"verdict": "pass", "error": "rank 1 died"}, name="ddp").verdict == "FAIL"
    assert read_workload_result({"verdict": "pass", "error": {}}, name="ddp").error == "of an unknown kind"
