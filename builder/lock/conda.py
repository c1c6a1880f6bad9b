"""Exact conda packages for a site: solved by py-rattler for the site's platform, never for this machine's."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from builder.layers.certificates import find_certificates
from builder.layers.conda_program import find_rattler
from builder.layers.conda_solver import solve_request
from builder.layers.private_folders import CONDA
from builder.layers.uv import make_uv_settings
from builder.lock.session import Session, find_machine_error, format_output_tail, make_unreachable_error
from builder.model.finding import ConfigError, Finding, Location, StepError, ToolError, UnsupportedError
from builder.model.lock import LockRequest
from builder.model.secrets import Mask, strip_all_credentials
from builder.model.site import SUBDIRS
from builder.sif.errors import LayeringError

# One program solves for locks and for layers; it is also copied into plan folders.
WORKER = Path(__file__).parents[1] / "layers" / "conda_worker.py"
UNSOLVABLE = ("SolverError",)
FAULTY = (
    "InvalidMatchSpecException",
    "InvalidMatchSpecError",
    "InvalidChannelException",
    "InvalidChannelError",
    "ParseError",
)
CHANNEL = re.compile(r"(https?://[^\s'\")]+?)/(?:noarch|linux-\w+)/")


def lock_conda(asked: LockRequest, *, virtual: tuple[str, ...], folder: str, at: Location, session: Session) -> str:
    """Solve and return the text of a rattler lock; `folder` is what relative channels are relative to.

    Raises UnsupportedError if no packages fit, StepError if a channel cannot be reached, ConfigError for an invalid
    dependency, ToolError without py-rattler.
    """
    output, request, answer = (session.work / name for name in ("pixi.lock", "request.json", "answer.json"))
    for path in (output, answer):
        path.unlink(missing_ok=True)
    document = _make_request(asked, virtual=virtual, folder=folder, output=output, session=session)
    request.write_text(json.dumps(document), encoding="utf-8")
    finished = session.run(
        [sys.executable, str(WORKER), str(request), str(answer)],
        cwd=session.work,
        env=_make_environment(session, at=at),
        name="solver",
    )
    try:
        result = json.loads(answer.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        tail = Mask(session.environment)(format_output_tail(finished))
        if stopped := find_machine_error(finished, tail, program="py-rattler", at=at):
            raise stopped from None
        message = f"py-rattler finished with {finished.exit_code} and no answer: {format_output_tail(finished)}"
        raise ToolError(
            Finding(
                code="lock-solver", message=message, fix="lock again; if it stays so, report it with the lines above"
            )
        ) from None
    if result["error"]:
        text = Mask(session.environment)(result["text"])
        if result["error"] not in UNSOLVABLE and (
            stopped := find_machine_error(finished, text, program="py-rattler", at=at)
        ):
            raise stopped
        raise _make_solver_error(result["error"], text, at=at)
    return strip_all_credentials(output.read_text(encoding="utf-8"))


def _make_request(
    asked: LockRequest, *, virtual: tuple[str, ...], folder: str, output: Path, session: Session
) -> dict[str, object]:
    return solve_request(
        channels=asked.channels,
        specs=asked.conda,
        virtual=virtual,
        platform=SUBDIRS[asked.arch],
        cache=session.cache / CONDA,
        work=session.work,
        alias=session.environment.get("CONDA_CHANNEL_ALIAS", ""),
        offline=session.offline,
        folder=str(Path(folder).resolve()),
        output=str(output),
    )


def _make_environment(session: Session, *, at: Location) -> dict[str, str]:
    """The environment of the solver: certificates, and the modules that this Python imports, in the same order.

    Raises ToolError where py-rattler is missing and cannot be fetched.
    """
    given = session.environment
    settings = make_uv_settings(given, cache=session.cache, offline=session.offline)
    try:
        fetched = find_rattler(work=session.work, environment=settings, offline=session.offline, log=_ignore)
    except LayeringError as error:
        message = Mask(given)(str(error))
        raise ToolError(Finding(code="lock-solver", message=message, at=at, fix=error.fix)) from None
    path = [*([] if fetched is None else [str(fetched)]), *filter(None, sys.path)]
    kept = {name: value for name, value in given.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": os.pathsep.join(path), **find_certificates(given).variables}


def _ignore(line: str) -> None:
    del line  # the command says itself that it waits


def _make_solver_error(kind: str, text: str, *, at: Location) -> Exception:
    text = re.sub(r"\s+", " ", strip_all_credentials(text)).strip()
    if kind in UNSOLVABLE:
        reason = text.removeprefix("Cannot solve the request because of: ")
        message = f"the conda packages cannot be installed together: {reason}"
        fix = "loosen a version, or add the channel that has what is missing"
        return UnsupportedError(Finding(code="lock-conda", message=message, at=at, fix=fix))
    if kind in FAULTY:
        fix = "check it"
        return ConfigError(Finding(code="lock-spec", message=f"conda cannot read a line: {text}", at=at, fix=fix))
    if re.search(r"No such file or directory|404|could not find subdir", text):
        message = f"a channel is missing: {text}"
        return StepError(Finding(code="lock-channel", message=message, at=at, fix="check its name or address"))
    # The file of a channel that is requested first differs from run to run.
    found = CHANNEL.search(text)
    return make_unreachable_error(
        f"the channel '{found[1]}'" if found else "a channel", text.rpartition("Caused by: ")[2]
    )
