"""The phases of a start, on a machine whose clock of the day is set meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.rows import rows

from builder.smoke import startup

PHASES = ("exec_to_python", "import_torch", "first_device", "first_step")


LOOK = 0.001  # seconds that pass between two looks at a clock: less than any jump


class Clocks:
    """The clock of the day is set back, or forward, after so many looks at it."""

    def __init__(self, jump: float, after: int) -> None:
        self.now, self.jump, self.after, self.looks = 100.0, jump, after, 0

    def monotonic(self) -> float:
        self.now += LOOK
        return self.now

    def time(self) -> float:
        self.looks += 1
        return 1_000_000.0 + self.monotonic() + (self.jump if self.looks > self.after else 0.0)


@rows("after", [1, 2, 3, 5, 7])
@rows("jump", [-50.0, -0.2, 0.0, 0.2, 50.0])
@rows("said", [True, False])
def test_the_phases_fit_into_the_whole_however_the_clock_is_set(
    monkeypatch: pytest.MonkeyPatch, jump: float, after: int, said: bool
) -> None:
    clocks = Clocks(jump, after)
    work = SimpleNamespace(
        load_torch=lambda **_: SimpleNamespace(ones=lambda *_, **__: SimpleNamespace(add_=lambda _: None)),
        describe_torch=lambda _: {},
        choose_device=lambda *_: ("cpu", 0),
        select_device=lambda *_: "cpu",
        synchronize=lambda *_: None,
        describe_device=lambda *_: {},
    )
    monkeypatch.setattr(startup, "time", clocks)
    monkeypatch.setattr(startup, "hardware", work)
    monkeypatch.setattr(startup, "_step", lambda *_: None)
    monkeypatch.setattr(startup, "_measure_age", lambda: clocks.monotonic() - 90.0)
    result: dict[str, Any] = {"seconds": {}}
    options = SimpleNamespace(started=1_000_090.0 if said else None, device="cpu")
    run = SimpleNamespace(
        result=result, options=options, count_seconds=lambda: clocks.monotonic() - 100.0, print_progress=lambda _: None
    )
    startup.work(run)  # type: ignore[arg-type]
    seconds = result["seconds"]
    between = seconds["exec_to_first_step"] - sum(seconds[name] for name in PHASES)
    assert 0.0 <= round(between, 3) <= 10 * LOOK
    assert [seconds[name] for name in PHASES[1:]] == [LOOK, LOOK, LOOK]
    assert seconds["exec_to_python"] == pytest.approx(10.0, abs=2 * LOOK)
