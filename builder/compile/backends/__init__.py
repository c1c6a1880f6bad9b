"""The backends: ways to build an image. A literal table; each row is a module with the same two functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from builder.compile.backend_plan import BackendPlan
from builder.compile.backends import apptainer, cotainr, docker, layers, tykky
from builder.model.finding import Finding, UnsupportedError, select_errors
from builder.model.site import BackendName
from builder.model.target import Target


class Backend(Protocol):
    """What a backend's module offers."""

    def check(self, target: Target) -> tuple[Finding, ...]:
        """Say what this way of building cannot do for the target; errors stop the compilation."""

    def plan(self, target: Target) -> BackendPlan:
        """Write the files and steps that make the image."""


BACKENDS: Final[Mapping[BackendName, Backend]] = {
    "apptainer": apptainer,
    "cotainr": cotainr,
    "docker": docker,
    "layers": layers,
    "tykky": tykky,
}


def check_backend(target: Target) -> tuple[Finding, ...]:
    """Say what is known of a target and of its way of building; raises UnsupportedError when it cannot serve it."""
    findings = (*target.findings, *BACKENDS[target.backend].check(target))
    if select_errors(findings):
        raise UnsupportedError(*findings)
    return findings
