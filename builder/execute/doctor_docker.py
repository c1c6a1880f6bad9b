"""The Docker daemon, really reached: by Docker's own library, with a short patience."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from builder.execute.doctor_readings import Reading, State
from builder.model.text import escape_line
from builder.system.capture import BackgroundCommand

SOCKET = "unix:///var/run/docker.sock"
SECONDS = 1.0  # for each answer of the daemon
GROUP = "docker"
START = "start it (`systemctl start docker`), or name another by DOCKER_HOST"
RIGHTS = "ask the administrator for the right to use it (the group of the socket), or build with another backend"
WITHOUT = 23  # the first Docker that has it by the plug-in alone
BUILDX = "install the plug-in docker-buildx: Dockerfiles of a plan need BuildKit"


def docker_readings(
    *, environment: Mapping[str, str], program: Path | None, version: str = "", needed: bool
) -> list[Reading]:
    """What the daemon says of itself; `program` is the command `docker` of that `version`."""
    if program is None and not needed:
        return []
    missing: State = "bad" if needed else "none"
    question = BackgroundCommand([str(program), "buildx", "version"], env=environment) if program else None
    try:
        said, fix = _daemon(environment)
        says = " ".join(escape_line(said).split())[:160]
        readings = [Reading(name="daemon", state=missing if fix else "ok", says=says, fix=fix, group=GROUP)]
    finally:
        answer = question.wait(timeout=SECONDS) if question else None
    if answer is not None:
        line = next((text for text in answer.text.splitlines() if text.strip()), "")
        if answer.exit_code == 0 and line:
            readings.append(Reading(name="buildx", state="ok", says=escape_line(line)[:80], group=GROUP))
        elif own_buildkit(version):
            readings.append(
                Reading(name="buildx", state="ok", says="not needed: this Docker has BuildKit itself", group=GROUP)
            )
        else:
            readings.append(Reading(name="buildx", state=missing, says="missing", fix=BUILDX, group=GROUP))
    return readings


def own_buildkit(version: str) -> bool:
    """Whether `docker` of that version has BuildKit without a plug-in (from Docker 23 on it is buildx)."""
    found = re.search(r"(\d+)\.\d+", version)
    return found is not None and 18 <= int(found[1]) < WITHOUT


def _daemon(environment: Mapping[str, str]) -> tuple[str, str]:
    """What is said of it, and what to do where it cannot be used, else ""."""
    address = environment.get("DOCKER_HOST") or SOCKET
    path = Path(address.removeprefix("unix://")) if address.startswith("unix://") else None
    if path is not None and not path.exists():
        return f"no daemon listens at {path}", START
    if path is not None and not os.access(path, os.R_OK | os.W_OK):
        return f"you may not use {path}", RIGHTS
    import docker
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        with_host = {**environment, "DOCKER_HOST": address}
        client: Any = docker.from_env(timeout=SECONDS, environment=with_host)
        try:
            client.ping()
            version, info = client.version(), client.info()
        finally:
            client.close()
    except (DockerException, RequestException, OSError, ValueError) as error:
        return f"no answer from {address}: {error}", START
    return f"{version.get('Version', '?')} at {address}, {_root(str(info.get('DockerRootDir', '')))}", ""


def _root(folder: str) -> str:
    """Its own folder, and the room there where this machine has it, in GiB."""
    with suppress(OSError):
        return f"keeps images in {folder} ({shutil.disk_usage(folder).free / 2**30:.0f} GiB free)"
    return f"keeps images in {folder or 'a folder that it does not say'}"
