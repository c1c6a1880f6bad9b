"""The part of a plan that a backend makes, and checks that several backends share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from builder.model.finding import Finding, Location
from builder.model.plan import Copy, PlanFile, Step
from builder.model.site import BackendName
from builder.model.target import Target


@dataclass(frozen=True, kw_only=True)
class BackendPlan:
    """Files and steps up to the image, without the smoke test."""

    image: str
    image_kind: Literal["sif", "folder"]
    files: tuple[PlanFile, ...]
    steps: tuple[Step, ...]
    copies: tuple[Copy, ...] = ()


def list_other_backends(target: Target, *able: BackendName) -> str:
    """Write the options that choose another capable backend of the site; "" if it has none."""
    names = [name for name in target.site.build.backends if name in able and name != target.backend]
    return " or ".join(f"--backend {name}" for name in names)


def check_unsupported_keys(target: Target, *, keys: tuple[str, ...], backend: str, fix: str) -> tuple[Finding, ...]:
    """Report each key of the container section that the backend does not support."""
    container = target.recipe.container
    found = []
    ways = list_other_backends(target, "layers", "apptainer", "docker")
    fix = f"build with {ways}, or remove it" if ways else fix
    for key in keys:
        if getattr(container, key):
            at = Location(
                file=target.recipe.file, line=target.recipe.lines.get(f"container.{key}"), key=f"container.{key}"
            )
            message = f"{backend}, the backend for '{target.site.name}', does not support container.{key}"
            found.append(Finding(code=f"{backend}-{key}", message=message, at=at, fix=fix))
    return tuple(found)


def check_constraints(target: Target, *, backend: str) -> tuple[Finding, ...]:
    """Report constraints (`-c`) for a backend that takes one environment file only."""
    own = target.recipe.pip_options.constraints
    if not target.environment.constraints[len(target.environment.torch_lines) :]:
        return ()
    at = Location(file=own[0].file or target.recipe.file, line=own[0].line)
    message = f"{backend}, the backend for '{target.site.name}', does not support constraints (-c)"
    ways = list_other_backends(target, "layers", "apptainer", "docker")
    fix = f"write the versions as requirements, or {f'build with {ways}' if ways else 'use another site'}"
    return (Finding(code=f"{backend}-constraints", message=message, at=at, fix=fix),)


def estimate_size_gib(target: Target) -> float:
    """Estimate the size of the unpacked image in GiB, cautiously: the kind of base image plus torch."""
    kind = 25.0 if target.base.family == "ngc-pytorch" else 12.0 if target.base.rocm or target.base.family else 1.0
    base = target.context.base_gib or kind
    torch = target.environment.torch
    fresh = 0.0 if torch is None or torch.provided else 2.0 if torch.token == "cpu" else 14.0
    return base + fresh + 1.0
