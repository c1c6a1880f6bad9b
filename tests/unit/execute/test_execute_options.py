"""Options, the environment of a step and signals."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.rows import rows

import builder
from builder.execute.build_options import ExecutionOptions, SignalInterrupt, Signals
from builder.execute.plan_executor import choose_steps
from builder.layers.uv import find_own_uv
from builder.model.finding import ConfigError
from builder.model.plan import Plan
from builder.system.scratch import make_step_environment

PlanOf = Callable[..., Plan]


def options(**changes: Any) -> ExecutionOptions:
    return ExecutionOptions(environment={}, **changes)


def steps_of(plan_of: PlanOf) -> Plan:
    kinds = {"build": "build", "smoke-a": "smoke", "convert": "convert", "smoke-b": "smoke"}
    return plan_of({name: {"text": "", "kind": kind} for name, kind in kinds.items()})


@rows(
    ("changes", "skipped", "runs"),
    [
        ({}, [], ["build", "convert", "smoke-a", "smoke-b"]),
        ({"start": "convert"}, ["build"], ["convert", "smoke-a", "smoke-b"]),
        ({"start": "smoke-b"}, ["build", "convert", "smoke-a"], ["smoke-b"]),
        ({"no_smoke": True}, ["smoke-a", "smoke-b"], ["build", "convert"]),
        ({"start": "convert", "no_smoke": True}, ["build", "smoke-a", "smoke-b"], ["convert"]),
    ],
)
def test_choose_steps(plan_of: PlanOf, changes: dict[str, Any], skipped: list[str], runs: list[str]) -> None:
    found = choose_steps(steps_of(plan_of), options(**changes))
    assert [[step.name for step in part] for part in found] == [skipped, runs]


def test_an_unknown_step_is_refused_with_the_closest(plan_of: PlanOf) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_steps(steps_of(plan_of), options(start="convrt"))
    (finding,) = caught.value.findings
    assert finding.message == "the plan has no step 'convrt' to start from"
    assert finding.fix.startswith("did you mean 'convert'?")


def test_the_environment_of_a_step_has_no_binds() -> None:
    user = {
        "PATH": "/bin", "SINGULARITY_BIND": "/a", "SINGULARITY_BINDPATH": "/a", "APPTAINER_BIND": "/a",
        "APPTAINER_BINDPATH": "/a", "APPTAINER_CONTAINLIBS": "x", "APPTAINER_CACHEDIR": "/c", "RECIPE_TMPDIR": "/old",
    }  # fmt: skip
    own = Path(sys.executable)
    assert make_step_environment(user, scratch=Path("/t")) == {
        "PATH": f"/bin:{own.parent}",  # the user's own programs come first
        "RECIPE_UV": find_own_uv(),
        "RECIPE_PYTHON": str(own),
        "RECIPE_LAYERING": str(Path(builder.__file__).with_name("layers")),
        "APPTAINER_CACHEDIR": "/c",
        "RECIPE_TMPDIR": "/t",
    }
    assert "SINGULARITY_BIND" in user


@pytest.fixture
def heeded() -> Iterator[None]:
    """SIGINT as a terminal's program has it: what a shell starts with `&` has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_signals_become_interrupts_and_go_back() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = [signal.getsignal(number) for number in numbers]
    signals = Signals()
    for number, exit_code in ((signal.SIGINT, 130), (signal.SIGQUIT, 131), (signal.SIGTERM, 143)):
        with pytest.raises(SignalInterrupt) as caught, signals.catch():
            signal.raise_signal(number)
        assert caught.value.exit_code == exit_code
        assert str(caught.value) == signal.Signals(number).name
    with signals.catch(), signals.shield():
        signal.raise_signal(signal.SIGTERM)
    assert [signal.getsignal(number) for number in numbers] == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals().catch():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
