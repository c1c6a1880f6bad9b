"""Whether Docker can build here: asked of the command `docker` itself, whose context may name another daemon."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from builder.model.finding import Finding, ToolError
from builder.model.plan import Step
from builder.system.capture import BackgroundCommand
from builder.system.failures.engines import ENGINES

SECONDS = 10.0  # a daemon that has just been started answers within a few
OWN_BUILDKIT = range(18, 23)  # versions of Docker that have BuildKit without a plug-in
_NO_ANSWER = re.compile(r"error during connect|(?:cannot|failed to) connect", re.IGNORECASE)


def check_docker(steps: Sequence[Step], *, environment: Mapping[str, str]) -> None:
    """Raise ToolError where a step needs Docker and its daemon or BuildKit is missing here."""
    if any("docker" in step.programs for step in steps):
        fault = find_docker_fault(environment)
        if fault is not None:
            raise ToolError(fault)


def find_docker_fault(environment: Mapping[str, str]) -> Finding | None:
    """Ask the daemon and the plug-in buildx at the same time; what neither denies is left to the build."""
    form = "{{.Client.Version}} {{.Server.Version}}"
    daemon = BackgroundCommand(["docker", "version", "--format", form], env=environment)
    buildx = BackgroundCommand(["docker", "buildx", "version"], env=environment)
    try:
        answer = daemon.wait(timeout=SECONDS)
        if answer.exit_code:
            return _read_fault(answer.text, late=answer.exit_code == 124)
        version = re.match(r"\s*(\d+)\.", answer.text)
        plugin = buildx.wait(timeout=SECONDS)
        if plugin.exit_code in (0, 124, 127) or version is None or int(version[1]) in OWN_BUILDKIT:
            return None
        return _known("docker-buildx")
    finally:
        daemon.stop()
        buildx.stop()


def _read_fault(text: str, *, late: bool) -> Finding | None:
    """Make the finding of what `docker version` printed; None if it says nothing of the daemon."""
    line = " ".join(text.split())
    for cause in ENGINES:
        found = cause.pattern.search(f"{line} ") if cause.code in ("docker-rights", "docker-down") else None
        if found:
            return Finding(code=cause.code, message=cause.message.format(**found.groupdict()), fix=cause.fix)
    if late or _NO_ANSWER.search(line):
        how = f"does not answer within {SECONDS:.0f} s" if late else "cannot be reached"
        return _known("docker-down", message=f"the Docker daemon {how}")
    return None


def _known(code: str, *, message: str = "") -> Finding:
    cause = next(cause for cause in ENGINES if cause.code == code)
    return Finding(code=code, message=message or cause.message, fix=cause.fix)
