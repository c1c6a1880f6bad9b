"""The Docker daemon: whether Docker can build here, and what `recipe doctor` reads of it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.model.finding import Finding, ToolError
from builder.model.text import escape_line
from builder.system.failures.engines import ENGINES
from builder.system.process import BackgroundCommand

if TYPE_CHECKING:
    from builder.execute.doctor_readings import Reading, State

SOCKET = "unix:///var/run/docker.sock"
PATIENCE = 1.0  # for each answer of the daemon
GROUP = "docker"
START = "start it (`systemctl start docker`), or name another by DOCKER_HOST"
ASK = (
    "ask the administrator to start it, start one of your own (`dockerd-rootless-setuptool.sh install`) and name it by "
    "DOCKER_HOST, or build with another backend"
)
RIGHTS = "ask the administrator for the right to use it (the group of the socket), or build with another backend"
WITHOUT = 23  # the first Docker that has it by the plug-in alone
BUILDX = "install the plug-in docker-buildx: Dockerfiles of a plan need BuildKit"


def examine_docker(
    *, environment: Mapping[str, str], program: Path | None, version: str = "", needed: bool
) -> list[Reading]:
    """What the daemon says of itself; `program` is the command `docker` of that `version`."""
    from builder.execute.doctor_readings import Reading  # a build reads nothing of `doctor`

    if program is None and not needed:
        return []
    missing: State = "bad" if needed else "none"
    question = BackgroundCommand([str(program), "buildx", "version"], env=environment) if program else None
    try:
        said, fix = _query_daemon(environment)
        says = " ".join(escape_line(said).split())[:160]
        readings = [Reading(name="daemon", state=missing if fix else "ok", says=says, fix=fix, group=GROUP)]
    finally:
        answer = question.wait(timeout=PATIENCE) if question else None
    if answer is not None:
        line = next((text for text in answer.text.splitlines() if text.strip()), "")
        if answer.exit_code == 0 and line:
            readings.append(Reading(name="buildx", state="ok", says=escape_line(line)[:80], group=GROUP))
        elif has_own_buildkit(version):
            readings.append(
                Reading(name="buildx", state="ok", says="not needed: this Docker has BuildKit itself", group=GROUP)
            )
        else:
            readings.append(Reading(name="buildx", state=missing, says="missing", fix=BUILDX, group=GROUP))
    return readings


def has_own_buildkit(version: str) -> bool:
    """Whether `docker` of that version has BuildKit without a plug-in (from Docker 23 on it is buildx)."""
    found = re.search(r"(\d+)\.\d+", version)
    return found is not None and 18 <= int(found[1]) < WITHOUT


def _query_daemon(environment: Mapping[str, str]) -> tuple[str, str]:
    """What is said of it, and what to do where it cannot be used, else ""."""
    address = environment.get("DOCKER_HOST") or SOCKET
    path = Path(address.removeprefix("unix://")) if address.startswith("unix://") else None
    if path is not None and not path.exists():
        return f"no daemon listens at {path}", START if os.geteuid() == 0 else ASK
    if path is not None and not os.access(path, os.R_OK | os.W_OK):
        return f"you may not use {path}", RIGHTS
    import docker
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        with_host = {**environment, "DOCKER_HOST": address}
        client: Any = docker.from_env(timeout=PATIENCE, environment=with_host)
        try:
            client.ping()
            version, info = client.version(), client.info()
        finally:
            client.close()
    except (DockerException, RequestException, OSError, ValueError) as error:
        return f"no answer from {address}: {error}", START
    return f"{version.get('Version', '?')} at {address}, {_describe_root(str(info.get('DockerRootDir', '')))}", ""


def _describe_root(folder: str) -> str:
    """Its own folder, and the room there where this machine has it, in GiB."""
    with suppress(OSError):
        return f"keeps images in {folder} ({shutil.disk_usage(folder).free / 2**30:.0f} GiB free)"
    return f"keeps images in {folder or 'a folder that it does not say'}"


SECONDS = 10.0  # a daemon that has just been started answers within a few
OWN_BUILDKIT = range(18, 23)  # versions of Docker that have BuildKit without a plug-in
_NO_ANSWER = re.compile(r"error during connect|(?:cannot|failed to) connect", re.IGNORECASE)


def check_docker(environment: Mapping[str, str]) -> None:
    """Raise ToolError where Docker's daemon or BuildKit is missing here."""
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
        return _make_docker_finding("docker-buildx")
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
        return _make_docker_finding("docker-down", message=f"the Docker daemon {how}")
    return None


def _make_docker_finding(code: str, *, message: str = "") -> Finding:
    cause = next(cause for cause in ENGINES if cause.code == code)
    return Finding(code=code, message=message or cause.message, fix=cause.fix)
