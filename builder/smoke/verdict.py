"""Judge a result from its numbers; needs the standard library only and never fails on an altered result."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from . import judge_figures, judge_probe, judge_run, judge_training
from .facts import Check, Facts, show, vendor_of

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
    return judge_run.every_rank(facts) if facts.expected.get("ranks") is not None else []


_Rule = Callable[[Facts], List[Check]]
_DEVICE = (judge_run.device, judge_run.torch)
_RULES: Dict[str, Tuple[_Rule, ...]] = {
    "probe": (
        judge_run.error, judge_run.every_rank, judge_probe.sums, judge_probe.affinity, judge_probe.devices,
        judge_probe.network, judge_probe.variables, judge_probe.caches, judge_probe.workers, *_DEVICE,
        judge_run.backend, judge_run.time,
    ),
    "mnist": (judge_run.error, judge_training.accuracy, judge_training.loss, *_DEVICE, judge_run.time),
    "ddp": (
        judge_run.error, judge_run.every_rank, judge_training.accuracy, judge_training.loss,
        judge_training.rank_losses, judge_training.checksums, judge_training.shares, judge_training.orders, *_DEVICE,
        judge_run.backend, judge_run.time,
    ),
    "pi": (
        judge_run.error, judge_run.every_rank, judge_figures.integral, judge_figures.times, judge_run.torch,
        judge_run.time,
    ),
    "allreduce": (
        judge_run.error, judge_run.every_rank, judge_figures.bandwidth, *_DEVICE, judge_run.backend, judge_run.time,
    ),
    "startup": (judge_run.error, _ranks_of_start, judge_figures.start, *_DEVICE, judge_run.time),
    "imports": (judge_run.error, judge_run.modules, judge_run.time),
}  # fmt: skip
