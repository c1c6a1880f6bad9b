"""Judge a result from its numbers; needs the standard library only and never fails on an altered result."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from . import check_figures, check_probe, check_run, check_training
from .checks import Check, Facts, show, vendor_of

__all__ = ["SCHEMA", "Check", "judge", "passed", "vendor_of"]

SCHEMA = 1


def judge(result: object, expected: Optional[Mapping[str, Any]] = None) -> List[Check]:
    """Judge a result; ``expected`` replaces what the result itself says was expected of it.

    A field that is missing or of the wrong type is a failed check, never an exception.
    """
    if not isinstance(result, dict):
        return [Check("result", False, "nothing" if result is None else type(result).__name__, "an object")]
    facts = Facts(result, expected)
    schema = result.get("schema")
    if schema is True or schema != SCHEMA:
        return [Check("schema", False, show(schema), SCHEMA)]
    workload = result.get("workload")
    rules = _RULES.get(workload) if isinstance(workload, str) else None
    if rules is None:
        return [Check("workload", False, show(workload), " or ".join(_RULES))]
    return [check for rule in rules for check in rule(facts)]


def passed(checks: Sequence[Check]) -> bool:
    """Whether there are checks and every one is good."""
    return bool(checks) and all(check.ok for check in checks)


def _ranks_of_start(facts: Facts) -> List[Check]:
    """A start without a launcher is one process, which is no rank."""
    return check_run.every_rank(facts) if facts.expected.get("ranks") is not None else []


_Rule = Callable[[Facts], List[Check]]
_DEVICE = (check_run.device, check_run.torch)
_RULES: Dict[str, Tuple[_Rule, ...]] = {
    "probe": (
        check_run.error, check_run.every_rank, check_probe.sums, check_probe.affinity, check_probe.devices,
        check_probe.network, check_probe.variables, check_probe.caches, check_probe.workers, *_DEVICE,
        check_run.backend, check_run.time,
    ),
    "mnist": (check_run.error, check_training.accuracy, check_training.loss, *_DEVICE, check_run.time),
    "ddp": (
        check_run.error, check_run.every_rank, check_training.accuracy, check_training.loss,
        check_training.rank_losses, check_training.checksums, check_training.shares, check_training.orders, *_DEVICE,
        check_run.backend, check_run.time,
    ),
    "pi": (
        check_run.error, check_run.every_rank, check_figures.integral, check_figures.times, check_run.torch,
        check_run.time,
    ),
    "allreduce": (
        check_run.error, check_run.every_rank, check_figures.bandwidth, *_DEVICE, check_run.backend, check_run.time,
    ),
    "startup": (check_run.error, _ranks_of_start, check_figures.start, *_DEVICE, check_run.time),
    "imports": (check_run.error, check_run.modules, check_run.time),
}  # fmt: skip
