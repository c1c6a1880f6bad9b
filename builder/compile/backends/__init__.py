"""The backends: programs that build an image. Each row of the table is a module with the same two functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from builder.compile.backend_plan import BackendPlan
from builder.compile.backends import apptainer, cotainr, docker, layers, tykky
from builder.model.finding import Finding, UnsupportedError, select_errors
from builder.model.site import BackendName
from builder.model.target import Target


class Backend(Protocol):
    """The interface of a backend's module."""

    def check(self, target: Target) -> tuple[Finding, ...]:
        """Report what the backend cannot build for the target; errors stop the compilation."""

    def plan(self, target: Target) -> BackendPlan:
        """Make the files and steps that build the image."""


BACKENDS: Final[Mapping[BackendName, Backend]] = {
    "apptainer": apptainer,
    "cotainr": cotainr,
    "docker": docker,
    "layers": layers,
    "tykky": tykky,
}


def check_backend(target: Target) -> tuple[Finding, ...]:
    """Return the findings of a target and its backend; raises UnsupportedError if there is an error."""
    findings = (*target.findings, *BACKENDS[target.backend].check(target))
    if select_errors(findings):
        raise UnsupportedError(*findings)
    return findings
