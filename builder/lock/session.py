"""What the parts of one `recipe lock` share: the environment, a work folder, a cache, and errors of the resolvers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from packaging.utils import canonicalize_name

from builder.layers.uv import LEAST, VARIABLE, find_uv
from builder.model.finding import BuilderError, Finding, Location, StepError, ToolError, UnsupportedError
from builder.model.recipe import Recipe
from builder.model.secrets import ANY_USER, Mask
from builder.model.target import Target
from builder.model.text import sanitize
from builder.sif.errors import LayeringError
from builder.sif.programs import find_signal
from builder.system.failures.conflicts import CHECK_INDEXES, MISSING, explain_resolution
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


def shorten_reason(reason: str) -> str:
    """Of a chain of causes the address that was asked and the last cause; another text as it is."""
    url = re.search(r"Failed to fetch: [`']?([^\s`']+)", reason)
    first, *causes = re.split(r"\s+cause: ", reason)
    return f"{url[1]}: {causes[-1]}" if url and first and causes else reason


def make_unreachable_error(what: str, reason: str) -> StepError:
    """Return the error for a server that cannot be reached, or whose certificate is not trusted here."""
    message = f"{what} could not be reached: {shorten_reason(reason)}"
    fix = "lock where it can be reached, or set https_proxy (check it if it is set)"
    fix += ", or RECIPE_TORCH_INDEX to a mirror of PyTorch's wheels" if "download.pytorch.org" in reason else ""
    fix += "; --offline is enough where these were locked here before"
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


P = ParamSpec("P")
R = TypeVar("R")
# What uv 0.13 prints.
REFUSED = re.compile(r"An index(?: URL)? \((?P<index>\S+)\) [^(]*?\(?(?P<reply>401 Unauthorized|403 Forbidden)")
UNSOLVABLE = re.compile(r"No solution found|were? not found in the package registry|no versions? of \S+")
NETWORK = re.compile(r"[Ff]ailed to fetch|error sending request|dns error|[Cc]onnection refused|timed out|offline mode")
UNSEEN = re.compile(r"not found in the cache|network was disabled|there (?:is|are) no versions? of")
FAILED_BUILD = re.compile(r"Failed to (?:build|download and build) [`']([^`'\n]+)[`']")
_EXCEPTION = re.compile(r"^\s*(?:[\w.]*\.)?(\w*(?:Error|Exception|Exit|Requirement)\b.*)$", re.MULTILINE)
CHECK_LOGIN = (
    "write its user and password into ~/.netrc or its address (PIP_INDEX_URL, UV_DEFAULT_INDEX), or check them"
)


def make_resolver_error(
    finished: ProcessResult, *, at: Location, offline: bool = False
) -> StepError | UnsupportedError:
    """Return the error for what uv ended with; `offline` says that a version may be missing in the cache alone."""
    text = format_output_tail(finished)
    conflict = finished.exit_code == 1 and UNSOLVABLE.search(text) is not None
    stopped = None if conflict else find_machine_error(finished, ANY_USER.sub("//", text), program="uv", at=at)
    if stopped is not None:
        return stopped
    text = re.sub(r"^error: No solution found when resolving dependencies:?\s*(?:[×│╰─▶cause: ]*)", "", text)
    text = re.sub(r"\s*[×│╰─▶├]+\s*", " ", text)
    text = ANY_USER.sub("//", text).strip()
    if offline and (UNSEEN if conflict else NETWORK).search(text):
        message = f"no server is asked (--offline), and what was downloaded before is not enough: {text}"
        fix = "lock once without --offline where the indexes can be reached: these packages are kept in the cache"
        return StepError(Finding(code="lock-network", message=message, at=at, fix=fix))
    if NETWORK.search(text):
        return make_unreachable_error("an index of Python packages", text)
    if "Hash mismatch" in text:
        fix = "do not use the file; ask the owner of the index"
        message = f"a file does not match the hash of its index: {text}"
        return StepError(Finding(code="hash", message=message, at=at, fix=fix))
    if damaged := _find_damaged(text, at=at):
        return damaged
    missing = MISSING.search(text)
    if refused := REFUSED.search(text):
        message = f"the index '{sanitize(refused['index'])}' refused access ({refused['reply']})"
        message += f", and no other index has '{sanitize(missing[1])}'" if missing else f": {text}"
        return StepError(Finding(code="lock-network", message=message, at=at, fix=CHECK_LOGIN))
    if missing or conflict:
        why = explain_resolution(text)
        return UnsupportedError(Finding(code=why.code, message=why.message, at=at, fix=why.fix))
    output = ANY_USER.sub("//", "\n".join(finished.tail))
    if built := FAILED_BUILD.search(output):
        return _make_build_error(sanitize(built[1]), output, at=at)
    message, fix = f"the Python packages cannot be resolved: {text}", f"loosen a version, or {CHECK_INDEXES}"
    return UnsupportedError(Finding(code="lock-pip", message=message, at=at, fix=fix))


def _find_damaged(text: str, *, at: Location) -> UnsupportedError | None:
    """The error for a wheel that cannot be read, in the words of a build."""
    for cause in PACKAGES:
        found = cause.pattern.search(text) if cause.code == "damaged-wheel" else None
        if found is None or (cause.needs is not None and not cause.needs.search(text)):
            continue
        groups = {name: sanitize(value or "") for name, value in found.groupdict().items()}
        message = cause.message.format(**groups).removesuffix(": ")
        return UnsupportedError(Finding(code=cause.code, message=message, at=at, fix=cause.fix.format(**groups)))
    return None


def _make_build_error(package: str, output: str, *, at: Location) -> UnsupportedError:
    """The error for a package without a wheel, whose source cannot even say what it requires."""
    raised = [match[1].strip() for match in _EXCEPTION.finditer(output)]
    why = f": {sanitize(raised[-1], limit=300)}" if raised else ""
    message = f"'{package}' has no wheel that fits, and its source package cannot be built{why}"
    fix = "choose a version that has a wheel, or another package in its place"
    return UnsupportedError(Finding(code="lock-pip", message=message, at=at, fix=fix))


def locate_errors(lock: Callable[Concatenate[Target, P], R]) -> Callable[Concatenate[Target, P], R]:
    """What locks a target, whose errors have the line of the first package of the recipe that the message names."""

    @wraps(lock)
    def located(target: Target, /, *args: P.args, **options: P.kwargs) -> R:
        try:
            return lock(target, *args, **options)
        except BuilderError as error:
            findings = (_name_site(_locate_finding(one, target.recipe), target.site.name) for one in error.findings)
            raise type(error)(*findings) from None

    return located


def _name_site(finding: Finding, site: str) -> Finding:
    if finding.code != "wheel-variant":
        return finding
    return replace(finding, fix=finding.fix.replace("--site SITE", f"--site {site}"))


def _locate_finding(finding: Finding, recipe: Recipe) -> Finding:
    if finding.at is None or finding.at.line is not None:
        return finding
    lines = [(one.name, one.file, one.line) for one in recipe.pip if one.line is not None]
    lines += [(spec.name, "", spec.line) for spec in recipe.conda if spec.line is not None]
    found = re.findall(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", finding.message)
    words = [str(canonicalize_name(word)) for word in found]
    # the sentence itself may name Python
    named = ((name == "python", words.index(name), file, line) for name, file, line in lines if name in words)
    first = min(named, default=None, key=lambda one: one[:2])
    return finding if first is None else replace(finding, at=Location(file=first[2] or recipe.file, line=first[3]))
