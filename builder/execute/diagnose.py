"""Why a step failed, in one sentence and with one fix, from the end of its log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from builder.model.finding import Finding, Location
from builder.model.plan import Step
from builder.model.text import escape_line
from builder.system.failures import Cause
from builder.system.failures.conflicts import CODES, explain_resolution, find_resolution
from builder.system.failures.engines import ENGINES
from builder.system.failures.installers import PACKAGES
from builder.system.failures.resources import MACHINE, OWN
from builder.system.step_output import Event

# General messages of our own scripts come last: an engine may have printed the reason.
CAUSES = OWN[:-1] + MACHINE + ENGINES + PACKAGES + OWN[-1:]
UNKNOWN = "step-failed"
_KILLED = 137
TOLD = (
    "own-script",
    "gpu-audit",
    "hash",
    "hash-none",
    "damaged-wheel",
)  # codes of what our own programs say: the fix is theirs
_LOUD = re.compile(r"\s*(?:FATAL|CRITICAL|ERROR|[Ee]rror|[A-Z]\w*(?:Error|Exception))\b")
_FILLER = re.compile(
    r"\s*(?:note:|hint:|INFO:|WARNING:|\[end of output\]|See above|Traceback|During handling|\^+$|[-=~ ]+$|#)"
    # What engines say of any command that fails in a build; the command's own words stand before it.
    r"|FATAL:.* while running %post section: exit status \d+$"
    r"|(?:ERROR: failed to solve: process|executor failed running) .*exit code: \d+$"
    r"|recipe: part '\w+' of the installation failed with exit code \d+$"
    r"|recipe: this was written to the "
    r"|recipe: the packages cannot be resolved$|recipe: the wheels of layer '[^']*' could not be unpacked$"
    r"|> \[.*\]|Dockerfile:\d+$|\d+ \| "  # where in the Dockerfile it was
)
# How pip, curl, Go's programs, uv and conda name the server that they did not reach.
_HOSTS = tuple(
    re.compile(form)
    for form in (
        r"(?:[Ff]ailed to resolve|host=) ?'(?P<host>[\w.-]+)'",
        r"Could not resolve host: (?P<host>[\w.-]+\w)",
        r"Failed to connect to (?P<host>[\w.-]+) port",
        r"\blookup (?P<host>[\w-]+\.[\w.-]*\w)",
        r"https?://(?:[^\s/@]*@)*(?P<host>[\w.-]+\w)(?=[:/\s\"'>)]|$)",
    )
)
_COMMAND = re.compile(r"recipe: (command \d+ of container\.run failed)")
_TRACE = re.compile(r"\++ ")  # how `sh -x` shows a command before it runs
_BUILDKIT = re.compile(r"(?:#\d+ )?\d+\.\d{3} ")  # step and seconds before a line of a command


def explain(
    step: Step, log_tail: Sequence[str], exit_code: int, *, log: str = "", error: Event | None = None, base: str = ""
) -> Finding:
    """Recognise the failure of a step; one that is not known gives the last line that says something.

    `error` is what a program of ours has reported. What our scripts say inside an image, while an engine builds it, is
    in the engine's log alone.
    """
    at = Location(file=log) if log else None
    for cause in CAUSES:
        found = _match(cause, log_tail)
        if found is not None:
            digests = {"digests": _find_digests(log_tail)}
            named = {
                **digests,
                "base": escape_line(base),
                "host": _find_host(cause, log_tail),
                **_match_needed(cause, log_tail),
                **found.groupdict(),
            }
            groups = {name: (text or "").strip() for name, text in named.items()}
            message = cause.message.format(**groups).removesuffix(": ").replace(" '' ", " ")
            code = cause.code
            reported = error.get_text("fix") if error is not None and cause.code in TOLD else ""
            fix = escape_line(reported) or cause.fix.format(**groups)
            said = find_resolution(_strip_seconds(log_tail[-cause.within :])) if cause.code in CODES else ""
            if said:  # as `recipe lock` says it
                why = explain_resolution(escape_line(said))
                code, message, fix = why.code, why.message, why.fix
            return Finding(code=code, message=f"step '{step.name}' failed: {message}", fix=fix, at=at)
    return _make_unknown_finding(step, log_tail, exit_code, at=at)


def _strip_seconds(tail: Sequence[str]) -> list[str]:
    return [_BUILDKIT.sub("", line.strip(), count=1) for line in tail]


def _match(cause: Cause, tail: Sequence[str]) -> re.Match[str] | None:
    lines = tail[-cause.within :]
    if cause.needs is not None and not any(cause.needs.search(line) for line in lines):
        return None
    # The last one: earlier attempts may have failed for a reason that a retry has mended.
    return next((found for line in reversed(lines) if (found := cause.pattern.search(f"{line} "))), None)


def _match_needed(cause: Cause, tail: Sequence[str]) -> dict[str, str]:
    """What the line that had to be there names."""
    found = [match for line in tail[-cause.within :] if cause.needs and (match := cause.needs.search(line))]
    return found[-1].groupdict() if found else {}


# As uv 0.13 and pip 26 print them, in lines of their own.
_DIGESTS = re.compile(
    r"Expected:?\s+(?:sha256:?\s*)?(?P<given>[0-9a-f]{64})\b.{0,300}?(?:Computed:?|Got)\s+(?:sha256:?\s*)?(?P<found>[0-9a-f]{64})",
    re.DOTALL,
)


def _find_digests(tail: Sequence[str]) -> str:
    """Say which digest was given and which one a file has, "" if the log does not."""
    found = _DIGESTS.search("\n".join(tail))
    return f"; {found['given']} was given, it has {found['found']}" if found else ""


def _find_host(cause: Cause, tail: Sequence[str]) -> str:
    """Find the host that the last line about it names, "" if none does; never the login of an address."""
    about = (line for line in reversed(tail[-cause.within :]) if cause.pattern.search(f"{line} ") or "for url" in line)
    found = (match for line in about for form in _HOSTS if (match := form.search(line)))
    return next((match["host"] for match in found), "")


def _make_unknown_finding(step: Step, tail: Sequence[str], exit_code: int, *, at: Location | None) -> Finding:
    if exit_code == _KILLED:
        message = f"step '{step.name}' was killed, as the kernel does when the memory is used up"
        fix = "ask for more memory (--mem), or choose a folder on a disk with --tmpdir"
        return Finding(code="no-memory", message=message, fix=fix, at=at)
    said = find_error_line(tail)
    message = f"step '{step.name}' ended with exit code {exit_code}" + (f": {said}" if said else " and said nothing")
    fix = f"read the end of its log, '{at.file}'" if at else f"run `bash {step.script}` in the plan folder"
    return Finding(code=UNKNOWN, message=message, fix=fix, at=at)


def find_error_line(tail: Sequence[str]) -> str:
    """Find the line that most likely says what happened: the last loud one, else the last one that is no filler."""
    said_by_commands = _strip_seconds(tail[-60:])
    lines = [line.strip() for line in said_by_commands if line.strip() and not _FILLER.match(line)]
    loud = [line for line in lines[-25:] if _LOUD.match(line)]
    said = _cite_command(lines) or (loud or lines or [""])[-1]
    return said if len(said) <= 200 else said[:197] + "..."


def _cite_command(lines: Sequence[str]) -> str:
    """Which of the recipe's own commands failed, and what it said itself; "" where none did."""
    found = [(at, match[1]) for at, line in enumerate(lines) if (match := _COMMAND.match(line))]
    if not found:
        return ""
    at, failed = found[-1]
    begun = next((number for number in range(at - 1, -1, -1) if _TRACE.match(lines[number])), at)
    spoken = lines[begun + 1 : at]
    loud = [line for line in spoken if _LOUD.match(line)]
    return ": ".join([failed, *(loud or spoken)[-1:]])
