"""The workloads of a recipe's smoke test."""

from __future__ import annotations

from builder.model.target import Target

TRAINING_WORKLOADS = ("mnist", "ddp")  # they read digits
DISTRIBUTED_WORKLOADS = ("probe", "ddp", "pi", "allreduce", "startup")  # many ranks; the others are one process


def choose_workloads(target: Target) -> tuple[str, ...]:
    """Choose the workloads: the recipe's, else mnist and ddp if the image has torch."""
    chosen = target.recipe.container.smoke.workloads
    if chosen is not None:
        return chosen
    return ("mnist", "ddp") if target.environment.torch is not None else ()
