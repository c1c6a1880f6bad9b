"""The phases of a start, on a machine whose clock of the day is set meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from builder.smoke import startup

PHASES = ("exec_to_python", "import_torch", "first_device", "first_step")


class Clocks:
    """Every look takes a second; the clock of the day is set back, or forward, after the first look at it."""

    def __init__(self, jump: float) -> None:
        self.now, self.jump, self.looks = 100.0, jump, 0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now

    def time(self) -> float:
        self.looks += 1
        return 1_000_000.0 + self.monotonic() + (self.jump if self.looks > 1 else 0.0)


@pytest.mark.parametrize("jump", [-50.0, -0.2, 0.0, 0.2, 50.0])
@pytest.mark.parametrize("said", [True, False])
def test_the_phases_fit_into_the_whole_however_the_clock_is_set(
    monkeypatch: pytest.MonkeyPatch, jump: float, said: bool
) -> None:
    clocks = Clocks(jump)
    work = SimpleNamespace(
        load_torch=lambda: SimpleNamespace(ones=lambda *_, **__: SimpleNamespace(add_=lambda _: None)),
        describe_torch=lambda _: {},
        choose_device=lambda *_: ("cpu", 0),
        prepare=lambda *_: "cpu",
        synchronize=lambda *_: None,
        describe_device=lambda *_: {},
    )
    monkeypatch.setattr(startup, "time", clocks)
    monkeypatch.setattr(startup, "hardware", work)
    monkeypatch.setattr(startup, "_step", lambda *_: None)
    monkeypatch.setattr(startup, "_age", lambda: clocks.monotonic() - 90.0)
    result: dict[str, Any] = {"seconds": {}}
    options = SimpleNamespace(started=1_000_090.0 if said else None, device="cpu")
    run = SimpleNamespace(
        result=result, options=options, seconds=lambda: clocks.monotonic() - 100.0, say=lambda _: None
    )
    startup.work(run)  # type: ignore[arg-type]
    seconds = result["seconds"]
    assert sum(seconds[name] for name in PHASES) <= seconds["exec_to_first_step"]
    assert [seconds[name] for name in PHASES[1:]] == [1.0, 1.0, 1.0]
    assert seconds["exec_to_python"] == 9.0
