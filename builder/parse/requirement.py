"""One pip requirement (PEP 508, an address or a path) to its parts; `packaging` does the reading of PEP 508."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from builder.model.finding import ConfigError, Finding, Location, make_edit
from builder.model.recipe import PipRequirement
from builder.model.text import PATH, check_url, exists, make_config_error, sanitize

SCHEMES = ("https", "http", "file", "git+https", "git+http", "git+ssh", "git+file", "hg+https", "svn+https")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
SPECIFIER = re.compile(r"[A-Za-z0-9.*+!<>=~,_-]*")
MARKER = re.compile(r"[A-Za-z0-9_.<>=!~ \"'()+*-]*")
ARCHIVES = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz")
PIN = re.compile(r"==\s*[^*,\s]+")
EXACT = re.compile(r"={2,3}[^,]+")  # what pip calls pinned
BOUNDS = re.compile(r"[<>]=?[^,<>=!~*]+(?:,[<>]=?[^,<>=!~*]+)*")
BODY_LIMIT = 2_000  # characters
EXAMPLE = "write it as in 'numpy==1.26.4' or 'numpy>=1.2,<2'"


def parse_requirement(body: str, *, hashes: tuple[str, ...] = (), at: Location) -> PipRequirement:
    """Read a requirement without its options; raises ConfigError."""
    if len(body) > BODY_LIMIT:
        message = f"'{sanitize(body)}' is longer than {BODY_LIMIT} characters"
        raise make_config_error("pip-long", message, at=at, fix="write one package a line")
    if _looks_local(body) or re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", body) or body.startswith("git+"):
        return parse_location(body, hashes=hashes, at=at)
    try:
        parsed = Requirement(body)
    except (InvalidRequirement, UndefinedEnvironmentName, RecursionError):
        raise _make_error(body, at=at) from None
    match = re.match(r"[^;\[@<>=!~( ]+\s*(?:\[[^\]]*\])?", body)
    specifier = re.sub(r"[\s()]", "", body[match.end() if match else 0 :].partition(";")[0]) if not parsed.url else ""
    specifier = specifier.strip(",")
    marker = str(parsed.marker) if parsed.marker else ""
    if not NAME.fullmatch(parsed.name) or not SPECIFIER.fullmatch(specifier) or not MARKER.fullmatch(marker):
        message = f"'{sanitize(body)}' holds characters that no requirement needs"
        raise make_config_error("pip-character", message, at=at, fix=EXAMPLE)
    if parsed.url:
        check_url(parsed.url, at=at, schemes=SCHEMES)
    extras = tuple(sorted(parsed.extras))
    text = parsed.name + (f"[{','.join(extras)}]" if extras else "")
    text += f" @ {parsed.url}" if parsed.url else specifier
    text += f" ; {marker}" if marker else ""
    return PipRequirement(
        text=_add_hashes(text, hashes),
        name=canonicalize_name(parsed.name),
        specifier=specifier,
        extras=extras,
        marker=marker,
        url=parsed.url or "",
        hashes=hashes,
        line=at.line,
    )


def refuse_python(text: str, *, at: Location) -> ConfigError:
    """The error for Python among the packages of pip."""
    version = re.search(r"\d[\w.]*", text)
    spec = f"python={version[0]}" if version else "python=3.12"
    fix = f"remove it here; in an environment.yml write '- {spec}' below dependencies"
    return make_config_error("pip-python", "pip cannot install Python itself", at=at, fix=fix)


def _make_version_error(body: str, quoted: str, *, at: Location) -> ConfigError | None:
    """The error for a name and a version without an operator of pip between them."""
    single = re.fullmatch(r"([A-Za-z0-9._-]+)\s*=\s*([A-Za-z0-9.*+]+)(=\S+)?", body)
    if single:
        if single[1].lower() == "python":
            return refuse_python(body, at=at)  # two '=' would be refused next
        right = f"{single[1]}=={single[2]}"
        edit = make_edit(at, body, right) if not single[3] else None  # a conda build would be lost
        fix = f"pip compares with two: '{right}'"
        return make_config_error("pip-equals", f"{quoted} has a single '='", at=at, fix=fix, edit=edit)
    spaced = re.fullmatch(r"([A-Za-z0-9._-]+)\s+v?([0-9][A-Za-z0-9.*+]*)", body)
    if spaced:
        right = f"{spaced[1]}=={spaced[2]}"
        message = f"{quoted} has no operator before the version"
        return make_config_error("pip-form", message, at=at, fix=f"write '{right}'", edit=make_edit(at, body, right))
    return None


def _make_error(body: str, *, at: Location) -> ConfigError:
    """Say what a line that PEP 508 refuses looks like."""
    quoted = f"'{sanitize(body)}'"
    if error := _make_version_error(body, quoted, at=at):
        return error
    if re.match(r"(?:name|channels|dependencies)\s*:", body):
        fix = "give the file the ending .yml"
        return make_config_error("pip-form", f"{quoted} is a line of a conda environment file", at=at, fix=fix)
    for wrong in ("=>", "=<"):
        if wrong in body:
            edit = make_edit(at, wrong, f"{wrong[1]}=")
            message = f"'{wrong}' in {quoted} is not an operator"
            return make_config_error("pip-form", message, at=at, fix=f"write '{wrong[1]}='", edit=edit)
    if "::" in body:
        fix = "move it out of the pip list"
        return make_config_error("pip-form", f"{quoted} names a conda channel", at=at, fix=fix)
    if "$" in body or "{" in body or "`" in body:
        fix = "write the plain name and version: a recipe has no variables"
        return make_config_error("pip-character", f"{quoted} holds a variable or a template", at=at, fix=fix)
    if " - " in body and at.key.startswith("dependencies"):
        first, second = (sanitize(part) for part in body.split(" - ")[:2])
        message = f"the line after '{first}' is indented further, and is read as a part of it"
        fix = f"begin '- {second}' in the column of '- {first}', below '- pip:'"
        return make_config_error("pip-form", message, at=at, fix=fix)
    if called := re.match(r"[%!]?\s*(?:python3? -m |uv )?(?:pip3?|conda|mamba) install\s+(.*)", body):
        names = " and ".join(f"'{sanitize(word)}'" for word in called[1].split() if not word.startswith("-"))
        fix = f"write {names or 'the packages'} alone" + (", one on each line" if " and " in names else "")
        return make_config_error("pip-form", f"{quoted} is a command, and a package is named here", at=at, fix=fix)
    if len(re.findall(r"[A-Za-z0-9._-]+", body)) > 1 and re.fullmatch(r"[A-Za-z0-9._\s-]+", body):
        fix = "write one package a line"
        return make_config_error("pip-form", f"{quoted} is more than one package", at=at, fix=fix)
    before, semicolon, marker = body.partition(";")
    if semicolon and re.fullmatch(r"[A-Za-z0-9._\[\],<>=!~*+\s-]+", before):
        fix = "write it as in 'numpy ; python_version < \"3.12\"'"
        message = f"the marker '{sanitize(marker.strip())}' is not understood"
        return make_config_error("pip-marker", message, at=at, fix=fix)
    return make_config_error("pip-form", f"{quoted} is not a requirement that pip can read", at=at, fix=EXAMPLE)


def _looks_local(body: str) -> bool:
    head = body.partition("[")[0]
    if "@" in body and " @ " in body:
        return False
    return (
        bool(re.match(r"\.{1,2}(?:/|\[|$)|/|~", body)) or head.endswith(ARCHIVES) or ("/" in head and ":" not in head)
    )


def parse_location(body: str, *, hashes: tuple[str, ...] = (), editable: bool = False, at: Location) -> PipRequirement:
    """Read a requirement that is a URL or a path; its name is in `#egg=` or in the file name of a wheel."""
    body, _, marker = (part.strip() for part in body.partition(" ; "))
    if marker:
        message = f"'{sanitize(body)}' has a marker"
        raise make_config_error("pip-form", message, at=at, fix="write 'NAME @ ADDRESS ; MARKER'")
    is_url = bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", body))
    match = re.fullmatch(r"([^\[\]]*)\[([A-Za-z0-9._, -]*)\]", body) if not is_url else None
    path = match[1] if match else body
    extras = tuple(sorted(word.strip() for word in match[2].split(",") if word.strip())) if match else ()
    if is_url:
        check_url(body, at=at, schemes=SCHEMES)
    else:
        check_path(path, at=at)
    text = ("-e " if editable else "") + (f"{path}[{','.join(extras)}]" if extras else path)
    return PipRequirement(
        text=_add_hashes(text, hashes),
        name=_find_name(path),
        extras=extras,
        url=path,
        editable=editable,
        hashes=hashes,
        line=at.line,
    )


def _find_name(address: str) -> str:
    egg = re.search(r"[#&]egg=([A-Za-z0-9][A-Za-z0-9._-]*)", address)
    if egg:
        return canonicalize_name(egg[1])
    file = address.partition("#")[0].partition("?")[0].rpartition("/")[2].replace("%2B", "+").replace("%2b", "+")
    if file.endswith(".whl"):
        from builder.audit.wheel_names import drop_label

        try:
            return parse_wheel_filename(drop_label(file))[0]
        except InvalidWheelFilename:
            return ""
    return ""


def check_path(path: str, *, at: Location) -> None:
    """Raise ConfigError if a path cannot be copied into an image safely."""
    if not PATH.fullmatch(path):
        message = f"the path '{sanitize(path)}' holds characters that cannot be carried into an image safely"
        raise make_config_error("pip-path", message, at=at, fix="use letters, digits and ._/+@,=~- only")
    if path.startswith("~"):
        message = f"'{sanitize(path)}' depends on who reads it"
        fix = "write the path from the recipe's folder, or the full one"
        raise make_config_error("pip-path", message, at=at, fix=fix)


def check_exists(path: str, *, folder: Path, at: Location, package: bool = True) -> None:
    """Raise ConfigError if a requirement names a path that is missing on this machine, or not a package."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path) and not path.startswith("file:"):
        return
    local = folder / path.removeprefix("file://").removeprefix("file:")
    if not exists(local):
        message = f"there is no '{sanitize(path)}' on this machine"
        fix = "check the path, it is read from the recipe's folder"
        if path.startswith("file:"):
            fix = "`pip freeze` writes such lines in a conda environment: write NAME==VERSION in its place"
        raise make_config_error("pip-path", message, at=at, fix=fix)
    if package and path.startswith("file:") and local.is_dir():
        here, local = folder.absolute(), local.absolute()
        written = f"./{local.relative_to(here)}" if local.is_relative_to(here) else str(local)
        message = f"'{sanitize(path)}' is a folder of this machine: the build does not see it at this address"
        fix = f"write '{sanitize(written, limit=BODY_LIMIT)}' alone: a path is copied into the build"
        raise make_config_error("pip-path", message, at=at, fix=fix)
    if package and local.is_dir() and not any((local / name).exists() for name in ("pyproject.toml", "setup.py")):
        message = f"the folder '{sanitize(path)}' holds no package (no pyproject.toml, no setup.py)"
        raise make_config_error("pip-path", message, at=at, fix="name the folder in which it is")


def join_requirements(
    requirements: list[PipRequirement], *, file: str, key: str
) -> tuple[tuple[PipRequirement, ...], tuple[Finding, ...]]:
    """Make (name, marker) unique: repeats are dropped, extras are joined, two different constraints are a fault."""
    kept: dict[tuple[str, str, str], PipRequirement] = {}
    faults: list[Finding] = []
    for requirement in requirements:
        address = "" if requirement.name else requirement.url
        before = kept.setdefault((requirement.name, requirement.marker, address), requirement)
        old, new = (before.specifier, before.url), (requirement.specifier, requirement.url)
        if both := _join_specifiers(before, requirement):
            kept[(requirement.name, requirement.marker, address)] = both
        elif old != new and any(old) and any(new):
            where = Location(file=requirement.file or file, line=requirement.line, key="" if requirement.file else key)
            first = f"'{sanitize(before.text)}' in line {before.line}" + (f" of {before.file}" if before.file else "")
            message = f"'{requirement.name}' is listed twice: {first}, then '{sanitize(requirement.text)}'"
            faults += make_config_error("pip-twice", message, at=where, fix="keep one line for each package").findings
        elif requirement is not before:
            richer = requirement if any(new) and not any(old) else before
            joined = tuple(sorted({*before.extras, *requirement.extras}))
            kept[(requirement.name, requirement.marker, address)] = _add_extras(richer, joined)
    return tuple(kept.values()), tuple(faults)


def _join_specifiers(one: PipRequirement, other: PipRequirement) -> PipRequirement | None:
    """Join two constraints of a package as pip and uv do, None where they are one, or no version meets both."""
    if one.specifier == other.specifier or not (one.specifier and other.specifier):
        return None
    if one.url or other.url or one.hashes or other.hashes or "===" in one.specifier + other.specifier:
        return None
    pins = [part for part in (one.specifier, other.specifier) if PIN.fullmatch(part)]
    rest = one.specifier if pins and pins[0] == other.specifier else other.specifier
    if len(pins) > 1 or (pins and not SpecifierSet(rest).contains(pins[0][2:].strip(), prereleases=True)):
        return None
    if not pins and not _can_overlap(f"{one.specifier},{other.specifier}"):
        return None
    joined = tuple(sorted({*one.extras, *other.extras}))
    specifier = pins[0] if pins else f"{one.specifier},{other.specifier}"
    extras, marker = f"[{','.join(joined)}]" if joined else "", f" ; {one.marker}" if one.marker else ""
    return replace(one, specifier=specifier, extras=joined, text=f"{one.name}{extras}{specifier}{marker}")


def _can_overlap(specifier: str) -> bool:
    """Whether plain bounds leave a version between them; other operators are left to the user."""
    if not BOUNDS.fullmatch(specifier):
        return False
    bounds = [(one.operator, Version(one.version)) for one in SpecifierSet(specifier)]
    lower = max((version for sign, version in bounds if sign.startswith(">")), default=None)
    upper = min((version for sign, version in bounds if sign.startswith("<")), default=None)
    return lower is None or upper is None or lower < upper


def _add_extras(requirement: PipRequirement, extras: tuple[str, ...]) -> PipRequirement:
    if extras == requirement.extras or not requirement.name:
        return requirement
    text = f"{requirement.name}[{','.join(extras)}]"
    text += f" @ {requirement.url}" if requirement.url else requirement.specifier
    text += f" ; {requirement.marker}" if requirement.marker else ""
    return replace(requirement, extras=extras, text=_add_hashes(text, requirement.hashes))


def _add_hashes(text: str, hashes: tuple[str, ...]) -> str:
    return " ".join((text, *(f"--hash={value}" for value in hashes)))


def check_hashes(requirements: tuple[PipRequirement, ...], *, asked: bool, file: str) -> Iterator[Finding]:
    """Yield a finding for each requirement that pip refuses in a file with hashes.

    A line with a marker is left to the checks of a target: pip skips it where the marker does not hold.
    """
    if not asked and not any(requirement.hashes for requirement in requirements):
        return
    for requirement in requirements:
        if not requirement.marker and (fault := describe_hash_fault(requirement, asked=asked)):
            at = Location(file=requirement.file or file, line=requirement.line)
            yield from make_config_error("pip-hash", fault[0], at=at, fix=fault[1]).findings


def describe_hash_fault(requirement: PipRequirement, *, asked: bool) -> tuple[str, str] | None:
    """The message and the fix for a line that pip refuses in a file with hashes, None for others.

    `asked`: the file says --require-hashes.
    """
    if not requirement.hashes:
        why = "the file says --require-hashes" if asked else "others have one, and then pip wants one for all"
        return f"'{sanitize(requirement.text)}' has no hash; {why}", "add --hash=sha256:..., or remove all"
    if not requirement.url and not EXACT.fullmatch(requirement.specifier):
        written = sanitize(f"{requirement.name}{requirement.specifier}")
        message = f"'{written}' has a hash but no exact version; pip takes a hash only with '=='"
        fix = f"write '{requirement.name}==VERSION' with the version that the hash is of, or remove all hashes"
        return message, fix
    return None


def redact_line(finding: Finding, *, at: Location) -> Finding:
    """Return a fault without the text of a file: one outside the recipe's folder may be any file of the user."""
    message = (
        f"a line of '{sanitize(at.file)}' cannot be used; it is not shown, since the file is not in the recipe's folder"
    )
    fix = "look at the line; where the file is no list of requirements, do not build this recipe"
    return Finding(code=finding.code, message=message, at=at, fix=fix)
