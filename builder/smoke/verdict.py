"""Judge a result by its numbers; standard library only, and it never fails on an altered result."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from . import check_figures, check_probe, check_run
from .checks import Check, ResultView, show

SCHEMA = 1


def judge(result: object, expected: Optional[Mapping[str, Any]] = None) -> List[Check]:
    """Judge a result; ``expected`` replaces the expectations in the result itself.

    A missing field, or one of the wrong type, is a failed check, never an exception.
    """
    if not isinstance(result, dict):
        return [Check("result", False, "nothing" if result is None else type(result).__name__, "an object")]
    facts = ResultView(result, expected)
    schema = result.get("schema")
    if schema is True or schema != SCHEMA:
        return [Check("schema", False, show(schema), SCHEMA)]
    workload = result.get("workload")
    rules = _RULES.get(workload) if isinstance(workload, str) else None
    if rules is None:
        return [Check("workload", False, show(workload), " or ".join(_RULES))]
    return [check for rule in rules for check in rule(facts)]


def has_passed(checks: Sequence[Check]) -> bool:
    """Whether there are checks and all of them passed."""
    return bool(checks) and all(check.ok for check in checks)


def _check_ranks_of_start(facts: ResultView) -> List[Check]:
    """Check the ranks of a start by a launcher; otherwise it is one process."""
    return check_run.check_ranks(facts) if facts.expected.get("ranks") is not None else []


_Rule = Callable[[ResultView], List[Check]]
_DEVICE = (check_run.check_device, check_run.check_torch)
_RULES: Dict[str, Tuple[_Rule, ...]] = {
    "probe": (
        check_run.check_error, check_run.check_ranks, check_probe.check_sums, check_probe.check_affinity,
        check_probe.check_devices, check_probe.check_network, check_probe.check_variables, check_probe.check_caches,
        check_probe.check_workers, *_DEVICE, check_run.check_backend, check_run.check_time,
    ),
    "mnist": (
        check_run.check_error, check_figures.check_accuracy, check_figures.check_loss, *_DEVICE,
        check_run.check_time,
    ),
    "ddp": (
        check_run.check_error, check_run.check_ranks, check_figures.check_accuracy, check_figures.check_loss,
        check_figures.check_rank_losses, check_figures.check_checksums, check_figures.check_shares,
        check_figures.check_orders, *_DEVICE, check_run.check_backend, check_run.check_time,
    ),
    "pi": (
        check_run.check_error, check_run.check_ranks, check_figures.check_integral, check_figures.check_times,
        check_run.check_torch, check_run.check_time,
    ),
    "allreduce": (
        check_run.check_error, check_run.check_ranks, check_figures.check_bandwidth, *_DEVICE,
        check_run.check_backend, check_run.check_time,
    ),
    "startup": (
        check_run.check_error, _check_ranks_of_start, check_figures.check_start, *_DEVICE, check_run.check_time,
    ),
    "imports": (check_run.check_error, check_run.check_modules, check_run.check_time),
}  # fmt: skip
