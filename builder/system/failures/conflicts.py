"""What uv says where packages cannot be resolved, in the same words for a lock and for a build."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from builder.model.secrets import ANY_USER
from builder.model.text import sanitize

CODES = ("no-wheel", "no-package", "conflict")  # of the failures of a build that are explained here
# What uv 0.13 prints.
MISSING = re.compile(r"Because (\S+) was\s+not\s+found\s+in\s+the\s+package\s+registry")
VERSION = re.compile(r"Because there is no version of (\S+?),? and")
NO_PYTHON = re.compile(
    r"has no wheels with a matching Python|only found wheels for .* Python (?:ABI|version) tags?"
    r"|Because the (?:current|requested) Python version \S+ does not satisfy"
)
REQUIRES_PYTHON = re.compile(
    r"Python version \((?:>=)?(?P<has>[^)\s]+)\) does not satisfy Python(?P<needs>[<>=!~]\S*) and (?P<name>\S+) depends"
)
NO_ABI = re.compile(
    r"Because (?P<name>\S+) has no wheels with a matching Python (?:ABI|version) tag \(e\.g\., `cp3(?P<has>\d+)"
)
PYTHONS = range(6, 15)  # minor versions
VARIANTS = re.compile(r"([A-Za-z0-9][\w.-]*)(?:==(\S+))?\s+has\s+only\s+unsupported\s+wheel\s+variants")
CPYTHONS = re.compile(r"`cp3(\d+)m?`")
_START = re.compile(r"(?:No solution found|Because )")
_FRAME = re.compile(r"\s*[×│╰─▶├]+\s*")
_HEAD = re.compile(r"^.*?No solution found when resolving dependencies:?\s*(?:cause:)?\s*")
DAMAGED = re.compile(r"Because (\S+)\s+has\s+an\s+invalid\s+package\s+format")
NEWER = re.compile(r"hint:\s*`(\S+)`\s+was\s+filtered\s+by\s+`exclude-newer`")
CHECK_INDEXES = "check the indexes that PIP_INDEX_URL, UV_DEFAULT_INDEX and RECIPE_TORCH_INDEX name"


@dataclass(frozen=True, kw_only=True)
class ResolutionFailure:
    """Why packages cannot be resolved, and the next action."""

    code: str
    message: str
    fix: str


def explain_resolution(text: str) -> ResolutionFailure:
    """Explain uv's words, which are one paragraph."""
    text = ANY_USER.sub("//", _HEAD.sub("", _FRAME.sub(" ", text))).strip()
    if newer := NEWER.search(text):
        message = f"UV_EXCLUDE_NEWER leaves no '{sanitize(newer[1])}' that is old enough for the recipe"
        fix = "set UV_EXCLUDE_NEWER to a later day, or unset it"
        return ResolutionFailure(code="no-package", message=message, fix=fix)
    if damaged := DAMAGED.search(text):
        message = f"the wheel of '{sanitize(damaged[1])}' is damaged"
        fix = "copy or download it again: see the folder that PIP_FIND_LINKS or UV_FIND_LINKS names"
        return ResolutionFailure(code="damaged-wheel", message=message, fix=fix)
    if missing := MISSING.search(text):
        message = f"there is no Python package '{sanitize(missing[1])}' on the indexes that were asked"
        fix = "check its name, remove it, or name the index that has it with --extra-index-url"
        return ResolutionFailure(code="no-package", message=message, fix=fix)
    if version := VERSION.search(text):
        message = f"there is no '{sanitize(version[1])}' for this platform on the indexes that were asked"
        fix = "choose another version, or name the index that has it with --extra-index-url"
        return ResolutionFailure(code="no-package", message=message, fix=fix)
    if only := VARIANTS.search(text):
        message = f"'{sanitize(only[1])}' has variant wheels alone, which uv takes for the machine that it runs on"
        fix = _suggest_variant(sanitize(only[1]), sanitize(only[2] or "VERSION"))
        return ResolutionFailure(code="wheel-variant", message=message, fix=fix)
    if NO_PYTHON.search(text):
        return _explain_python(text)
    message = f"the Python packages cannot be installed together: {text}"
    return ResolutionFailure(code="conflict", message=message, fix=f"loosen a version, or {CHECK_INDEXES}")


def _explain_python(text: str) -> ResolutionFailure:
    """Explain that a package is for other Pythons only: which ones it requires, or has wheels for."""
    if found := REQUIRES_PYTHON.search(text):
        needs, has = found["needs"].rstrip(","), found["has"]
        message = (
            f"'{sanitize(found['name'])}' requires Python {sanitize(needs)}, and the environment has {sanitize(has)}"
        )
        near = _find_near_python(needs, has=has)
        fix = f"choose a version for this Python, or {f'Python {near}' if near else 'another Python'}"
        return ResolutionFailure(code="no-wheel", message=message, fix=fix)
    message = f"the Python packages have no files for this Python: {text}"
    if found := NO_ABI.search(text):
        message = f"'{sanitize(found['name'])}' has no wheel for Python 3.{found['has']}"
    return ResolutionFailure(code="no-wheel", message=message, fix=_suggest_python(text))


def _find_near_python(needs: str, *, has: str) -> str:
    """Find the Python X.Y that a requirement allows and that is the nearest to the one that is there; "" if none is."""
    try:
        wanted, own = SpecifierSet(needs), Version(has)
    except (InvalidSpecifier, InvalidVersion):
        return ""
    fitting = [minor for minor in PYTHONS if wanted.contains(f"3.{minor}.99") or wanted.contains(f"3.{minor}.0")]
    return f"3.{min(fitting, key=lambda minor: abs(minor - own.minor))}" if fitting else ""


def _suggest_variant(name: str, version: str) -> str:
    """The fix for a package with variant wheels alone."""
    file = f"{name.replace('-', '_')}-{version}-variants.json"
    return (
        f"get {file} from its index: `recipe inspect --gpu {file} --site SITE` names the wheels for the site; "
        "write the path of one, renamed without its label"
    )


def find_resolution(tail: Sequence[str]) -> str:
    """The last paragraph of a log in which uv says why packages cannot be resolved, "" where there is none."""
    lines = [line.strip() for line in tail]
    starts = [at for at, line in enumerate(lines) if _START.search(line) and "Because" in " ".join(lines[at : at + 2])]
    if not starts:
        return ""
    first = starts[-1]
    if first and "No solution found" in lines[first - 1]:
        first -= 1
    last = next((at for at in range(first, len(lines)) if "unsatisfiable." in lines[at]), first)
    hints = [line for line in lines[last + 1 :] if NEWER.search(line)]
    return " ".join([*lines[first : last + 1], *hints])


def _suggest_python(text: str) -> str:
    """The fix for wheels of other Pythons only: the newest of those that the hint of uv names."""
    found = sorted({int(minor) for minor in CPYTHONS.findall(text.partition("only found wheels")[2])})
    python = f"another Python (the newest with a wheel is 3.{found[-1]})" if found else "another Python"
    return f"choose a version that has a wheel for this Python, or {python}"
