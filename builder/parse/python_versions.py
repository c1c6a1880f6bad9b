"""The versions of Python that a file asks for: which ones exist, and whether a range has one."""

from __future__ import annotations

import re

from builder.model.finding import Location, make_edit
from builder.model.recipe import CondaSpec
from builder.model.text import make_config_error, sanitize

PYTHON = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?(?:\.?\*)?|\*")  # of Python: numbers
THREADED = re.compile(r"([0-9]+\.[0-9]+(?:\.[0-9]+)*)t")
FREE_THREADED = ("python-freethreading", "cpython-freethreading")
# A minor version: 3.15.0 is of 2026-10-01 and the next one in preparation (PEP 790, and release-cycle.json of
# peps.python.org, checked 2026-11-23).
NEWEST = 15
# The longest series is 3.9, which ends with 3.9.25 (PEP 596, checked 2026-11-23): five years of releases.
LAST_PATCH = 40


def check_python(spec: CondaSpec, *, at: Location) -> None:
    """Raise ConfigError for a version that Python does not have, before another replaces it."""
    if spec.name in FREE_THREADED or (spec.name == "python" and re.search(r"cp[0-9]+t$", spec.build)):
        message = f"'{sanitize(spec.text)}' is the free-threaded Python, which no site is built with"
        raise make_config_error("conda-version", message, at=at, fix="write the usual one, as in 'python=3.12'")
    if spec.name != "python":
        return
    for part in filter(None, re.split(r"[,|]", spec.version)):
        number = part.lstrip("=<>!~")
        if PYTHON.fullmatch(number):
            if not part.startswith(("<", "!")):
                _check_known(number, spec=spec, lowest=part.startswith(">"), at=at)
            continue
        message = f"'{sanitize(number)}' in '{sanitize(spec.text)}' is not a version of Python"
        fix, edit = "write it as in 'python=3.12'", None
        if threaded := THREADED.fullmatch(number):
            message = f"'{sanitize(spec.text)}' asks for the free-threaded Python, which no site is built with"
            fix = f"write 'python={threaded[1]}'"  # another Python: the user has to decide
        elif re.sub(r"[lI]", "1", re.sub(r"[oO]", "0", number)) != number:
            right = re.sub(r"[lI]", "1", re.sub(r"[oO]", "0", number))
            if PYTHON.fullmatch(right):
                fix, edit = f"write '{right}': there is a letter among its numbers", make_edit(at, number, right)
        raise make_config_error("conda-version", message, at=at, fix=fix, edit=edit)
    if "," in spec.version and "|" not in spec.version and _is_without_release(spec.version):
        message = f"no Python is in the range '{sanitize(spec.version)}'"
        raise make_config_error("conda-version", message, at=at, fix="write a range that has one, as in '>=3.10,<3.14'")


def _check_known(number: str, *, spec: CondaSpec, lowest: bool, at: Location) -> None:
    """Raise ConfigError for a series or a patch release that does not exist; the series in preparation does."""
    release = _cut(number)
    if release[:1] > (3,) or (release[:1] == (3,) and release[1:2] > (NEWEST + 1,)):
        message = f"'{sanitize(spec.text)}': there is no Python {sanitize(number)}, the newest one is 3.{NEWEST}"
        raise make_config_error("conda-version", message, at=at, fix=f"write 3.{NEWEST} or an older one")
    if not lowest and len(release) > 2 and release[2] > LAST_PATCH:
        short = f"{release[0]}.{release[1]}"
        message = f"'{sanitize(spec.text)}': there is no Python {sanitize(number)}: no {short} has that many releases"
        raise make_config_error("conda-version", message, at=at, fix=f"write {short}, without the last number")


def _is_without_release(version: str) -> bool:
    """Whether no Python is in a range: its own numbers, their neighbours and the ends of each series are tried."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    pep440 = (re.sub(r"^=(?!=)(.*?)(?:\.?\*)?$", r"==\1.*", part) for part in version.split(",") if part)
    try:
        wanted = SpecifierSet(",".join(pep440))
    except InvalidSpecifier:  # conda's forms that PEP 440 does not have: its solver judges them
        return False
    numbers = [tuple(map(int, one.split("."))) for one in re.findall(r"\d+(?:\.\d+){0,2}", version)]
    tried = [(3, minor, patch) for minor in range(NEWEST + 2) for patch in (0, LAST_PATCH)]
    for one in numbers:
        major, minor, patch = (*one, 0, 0)[:3]
        tried += [(major, minor, near) for near in (patch - 1, patch, patch + 1) if near >= 0]
    known = (one for one in tried if one[0] < 3 or (one[0] == 3 and one[1] <= NEWEST + 1))
    return not any(wanted.contains("{}.{}.{}".format(*one), prereleases=True) for one in known)


def _cut(number: str) -> tuple[int, ...]:
    """The numbers of a version: (3, 12) of 3.12.* and (3, 15, 0) of 3.15.0rc1."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9}){0,2}", number)
    return tuple(map(int, found[0].split("."))) if found else ()
