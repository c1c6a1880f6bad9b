"""What the parts of one `recipe lock` share: the environment, a work folder, a cache, the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.layers.uv import LEAST, VARIABLE, find_uv
from builder.model.finding import Finding, Location, StepError, ToolError
from builder.model.mask import Mask
from builder.sif.errors import LayeringError
from builder.sif.programs import find_signal
from builder.system.failures.installers import PACKAGES
from builder.system.failures.resources import MACHINE
from builder.system.process import ProcessResult, run

TIMEOUT = 1800.0  # seconds for one resolution
FIX = f"run `pip install 'uv=={'.'.join(map(str, LEAST))}'` where recipe is installed, or set {VARIABLE} to one"
# A lock writes to its cache and its temporary folder, and is no job.
SPACE = (
    "make room in the cache (`recipe cache prune`) and in TMPDIR, or set RECIPE_CACHE_DIR and TMPDIR to larger disks"
)
FIXES = {
    "no-space": SPACE,
    "no-space-image": SPACE,
    "quota": SPACE,
    "file-size": "raise it with `ulimit -f unlimited`",
    "no-memory": "lock where more memory is free (`ulimit -v`)",
    "read-only": "set RECIPE_CACHE_DIR and TMPDIR to folders that you may write to",
}
SHOWN = 12  # lines of a program's output in a finding


@dataclass(frozen=True, kw_only=True)
class Session:
    """`environment` is the user's, `work` a temporary folder, `cache` the folder of recipe's cache."""

    environment: Mapping[str, str]
    work: Path
    cache: Path
    offline: bool = False

    def run(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], name: str) -> ProcessResult:
        """Run a program; its output, without secrets, is the tail of the result."""
        log, mask = self.work / f"{name}.log", Mask(env)
        return run(argv, cwd=cwd, env=env, log=log, on_line=_ignore_line, mask=mask, timeout=TIMEOUT)


def _ignore_line(line: str) -> None:
    del line


def format_output_tail(finished: ProcessResult) -> str:
    """Return the end of a program's output as one paragraph."""
    lines = [line.strip() for line in finished.tail if line.strip()]
    return " ".join(lines[-SHOWN:])[-1500:]


def make_unreachable_error(what: str, reason: str) -> StepError:
    """Return the error for a server that cannot be reached, or whose certificate is not trusted here."""
    message = f"{what} could not be reached: {reason}"
    fix = "lock where it can be reached, or set https_proxy; --offline uses what was downloaded before"
    tls = next(cause for cause in PACKAGES if cause.code == "tls")
    if tls.pattern.search(reason):
        message, fix = f"{what} could not be read: {tls.message.partition(':')[0]}: {reason}", tls.fix
    return StepError(Finding(code="lock-network", message=message, fix=fix))


def find_machine_error(finished: ProcessResult, text: str, *, program: str, at: Location) -> StepError | None:
    """Return the error for a program that this machine stopped: a full disk, a quota, a limit, no memory, a signal."""
    if finished.timed_out:
        message, fix = f"{program} took longer than {TIMEOUT / 60:.0f} minutes", "lock again, or pin more versions"
        return StepError(Finding(code="lock-stopped", message=message, at=at, fix=fix))
    cause = next((cause for cause in MACHINE if cause.needs is None and cause.pattern.search(text)), None)
    killed = find_signal(program, finished.exit_code)
    if cause is not None:
        message = f"{program} could not do its work: {cause.message}: {text}"
        return StepError(Finding(code="lock-stopped", message=message, at=at, fix=FIXES.get(cause.code, cause.fix)))
    if killed is None:
        return None
    message = f"{killed}: {text}" if text else str(killed)
    return StepError(Finding(code="lock-stopped", message=message, at=at, fix=killed.fix))


def find_uv_program(environment: Mapping[str, str]) -> str:
    """Return the uv that builds use too; raises ToolError where there is none of that series."""
    try:
        found = find_uv(environment)
    except LayeringError as error:
        raise ToolError(Finding(code="lock-uv", message=str(error), fix=FIX)) from None
    if found is None:
        raise ToolError(Finding(code="lock-uv", message="the program 'uv' is missing", fix=FIX))
    return found
