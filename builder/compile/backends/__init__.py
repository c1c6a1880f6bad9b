"""The backends: programs that build an image. Each is a module of its name, with the same two functions."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Final, Protocol, cast, get_args

from builder.compile.backend_plan import BackendPlan
from builder.model.finding import Finding, UnsupportedError, select_errors
from builder.model.site import BackendName
from builder.model.target import Target


class Backend(Protocol):
    """The interface of a backend's module."""

    def check(self, target: Target) -> tuple[Finding, ...]:
        """Report what the backend cannot build for the target; errors stop the compilation."""

    def plan(self, target: Target) -> BackendPlan:
        """Make the files and steps that build the image."""


BACKENDS: Final[tuple[BackendName, ...]] = get_args(BackendName)


def load_backend(name: BackendName) -> Backend:
    """Import the module of a backend; a target needs one of them."""
    return cast(Backend, import_module(f"{__name__}.{name}"))


def list_backend_findings(target: Target) -> tuple[Finding, ...]:
    """Return what the backend reports; the fix for a key that it does not support names a backend that does."""
    found = load_backend(target.backend).check(target)
    keys = [one for one in found if one.level == "error" and one.code.startswith(f"{target.backend}-")]
    if not any(one.at is not None and one.at.key.startswith("container.") for one in keys):
        return found
    able = [name for name in target.site.build.backends if name != target.backend and _serves(target, name)]
    if not able:
        return found
    ways = " or ".join(f"--backend {name}" for name in able)
    return tuple(
        replace(one, fix=f"build with {ways}, {'' if one.fix.startswith('use ') else 'or '}{one.fix}")
        if one in keys and one.at is not None and one.at.key
        else one
        for one in found
    )


def _serves(target: Target, backend: BackendName) -> bool:
    return not select_errors(load_backend(backend).check(replace(target, backend=backend)))


def check_backend(target: Target) -> tuple[Finding, ...]:
    """Return the findings of a target and its backend; raises UnsupportedError if there is an error."""
    findings = (*target.findings, *list_backend_findings(target))
    if select_errors(findings):
        raise UnsupportedError(*findings)
    return findings
