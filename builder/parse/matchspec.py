"""One conda dependency, in every form that conda's MatchSpec reads, to its parts.

Source: conda's documentation "Package match specifications" and `conda/models/match_spec.py` (read 2026-11).
"""

from __future__ import annotations

import re
from dataclasses import replace

from builder.model.finding import ConfigError, Finding, Location, find_typo, make_edit, suggest_name
from builder.model.recipe import CondaSpec
from builder.model.text import check_url, make_config_error, refuse_secrets, sanitize

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
CHANNEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_.-]+)*")
CONSTRAINT = re.compile(r"(==|!=|>=|<=|~=|=|>|<)?((?:[0-9]+!)?[A-Za-z0-9*][A-Za-z0-9_.+*-]*)")
BUILD = re.compile(r"[A-Za-z0-9_.+*]+")
COMMA = re.compile(r"=?=?[0-9]+(?:,[0-9]+)+")
PLAIN = re.compile(r"[A-Za-z0-9_.+*!<>=~,|:/@#%?&\[\]\"' -]*")
ARCHIVE = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.+-]*)-([^-/]+)-([^-/]+)\.(?:conda|tar\.bz2)")
FIELD = re.compile(r"\s*([a-z_0-9]+)\s*=\s*(\"[^\"]*\"|'[^']*'|[^,'\"\s]+)\s*(?:,|$)")
# conda ignores brackets without a `=`
EXTRAS = re.compile(
    r"\[(?!(?:build|channel|url|version)\])[A-Za-z0-9][A-Za-z0-9_.-]*(?:, ?[A-Za-z0-9][A-Za-z0-9_.-]*)*\]$"
)
FIELDS = ("build", "channel", "url", "version")
LENGTH_LIMIT = 500  # characters
EXAMPLE = "write it as in 'numpy=1.26' or 'numpy>=1.2,<2'"
PIP_FIX = "move it below '- pip:'"


def parse_conda_spec(text: str, *, at: Location) -> CondaSpec:
    """Read one conda dependency; raises ConfigError. `version` always begins with an operator: `=`, `==`, `>=`...

    conda reads `numpy 1.26` and `numpy=1.26=BUILD` as exactly that version: both give `==1.26`. `1.*` gives `=1.*`.
    """
    refuse_secrets(text, at=at)  # before anything of it is shown
    if len(text) > LENGTH_LIMIT:
        message = f"'{sanitize(text)}' is longer than {LENGTH_LIMIT} characters"
        raise make_config_error("conda-long", message, at=at, fix=EXAMPLE)
    text = " ".join(re.split(r"(?:^|\s)#", text, maxsplit=1)[0].split())
    _refuse_foreign(text, at=at)
    text = EXTRAS.sub("", text)
    if "[" not in text:
        text = re.sub(r"([<>=!~]=?) ", r"\1", re.sub(r" ?([,|]) ?", r"\1", text))
    if "://" in text and re.search(r"\.(?:conda|tar\.bz2)(?:#[0-9a-f]+)?$", text):
        return _parse_package_url(text, at=at)
    if re.search(r"\.(?:conda|tar\.bz2)$", text):
        message = f"'{sanitize(text)}' is a package file of this machine"
        raise make_config_error("conda-file", message, at=at, fix="name the package, or give its https:// address")
    body, bracket = _split_bracket(text, at=at)
    channel, separator, body = body.rpartition("::")
    if separator:
        check_channel(channel, at=at)
    name, rest = _split_name(body, whole=text, at=at)
    version, build = _split_build(rest, whole=text, at=at)
    if not bracket:
        return CondaSpec(
            text=text,
            name=name,
            version=_parse_version(version, whole=text, at=at, exact=bool(build)),
            build=build,
            channel=channel,
            line=at.line,
        )
    fields = {"version": version, "build": build, "channel": channel, **_parse_fields(bracket, whole=text, at=at)}
    return _from_fields(name, {key: value for key, value in fields.items() if value}, whole=text, at=at)


def check_channel(channel: str, *, at: Location) -> None:
    """Raise ConfigError when a channel is neither a name (`conda-forge`, `pytorch/label/nightly`) nor a clean URL."""
    refuse_secrets(channel, at=at)
    if "://" in channel:
        check_url(channel, at=at, schemes=("https", "http", "file"))
    elif not CHANNEL.fullmatch(channel):
        message = f"'{sanitize(channel)}' is not the name of a channel"
        if channel.startswith((".", "/", "~")):
            message = f"'{sanitize(channel)}' is a folder of this machine, which the build of an image cannot see"
            fix = "publish it at an https:// address, or write file:// and the full path for `--backend layers`"
            raise make_config_error("conda-channel", message, at=at, fix=fix)
        fix = "write one channel, as 'conda-forge' or by its https:// address; several need a '- ' line each"
        raise make_config_error("conda-channel", message, at=at, fix=fix)


def _refuse_foreign(text: str, *, at: Location) -> None:
    """Refuse what is not a conda dependency, with a guess of what it is."""
    if not text:
        raise make_config_error("conda-empty", "a dependency is empty", at=at, fix="remove the line")
    quoted = f"'{sanitize(text)}'"
    if text.startswith("-"):
        message = f"{quoted} is an option of pip, among conda packages"
        edit = make_edit(at, text, text, below="pip") if text.startswith("--") else None
        raise make_config_error("conda-pip", message, at=at, fix=PIP_FIX, edit=edit)
    if text.startswith("git+") or " @ " in text:
        message = f"{quoted} is a dependency of pip, among conda packages"
        raise make_config_error("conda-pip", message, at=at, fix=PIP_FIX, edit=make_edit(at, text, text, below="pip"))
    if ";" in text:
        message = f"{quoted} has a marker (';'), which only pip knows"
        raise make_config_error("conda-pip", message, at=at, fix=f"{PIP_FIX}, or leave the marker out")
    if not PLAIN.fullmatch(text):
        odd = next(character for character in text if not PLAIN.fullmatch(character))
        message = f"{quoted} holds '{sanitize(odd)}', which no conda dependency has"
        raise make_config_error("conda-character", message, at=at, fix=EXAMPLE)


def _parse_package_url(text: str, *, at: Location) -> CondaSpec:
    check_url(text, at=at, schemes=("https", "http"))
    file = text.partition("#")[0].rpartition("/")[2]
    match = ARCHIVE.fullmatch(file)
    if match is None:
        message = f"the package address ends in '{sanitize(file)}'"
        raise make_config_error("conda-url", message, at=at, fix="it has to end in NAME-VERSION-BUILD.conda")
    name, version, build = match.groups()
    _parse_version(version, whole=text, at=at, exact=True)
    return CondaSpec(text=text, name=name.lower(), version=f"=={version}", build=build, url=text, line=at.line)


def _split_bracket(text: str, *, at: Location) -> tuple[str, str]:
    """`pkg[version=1]` to `pkg` and `version=1`."""
    if "[" not in text and "]" not in text:
        if "'" in text or '"' in text:
            raise make_config_error("conda-character", f"'{sanitize(text)}' has quotes inside", at=at, fix=EXAMPLE)
        return text, ""
    match = re.fullmatch(r"([^\[\]'\"]*)\[([^\[\]]+)\]", text)
    if match is None:
        message = f"the brackets of '{sanitize(text)}' are not understood"
        raise make_config_error("conda-bracket", message, at=at, fix="write NAME[version='>=1.2',build='py*']")
    return match[1].strip(), match[2]


def _split_name(body: str, *, whole: str, at: Location) -> tuple[str, str]:
    match = re.match(r"[^\s=<>!~,|]*", body)
    name = match[0] if match else ""
    if ":" in name:
        message = f"'{sanitize(name)}' has one colon between channel and package"
        right = name.replace(":", "::")
        fix = f"write two: '{sanitize(right)}'"
        raise make_config_error("conda-name", message, at=at, fix=fix, edit=make_edit(at, name, right))
    if not NAME.fullmatch(name):
        message = f"'{sanitize(whole)}' names no package" if not name else f"'{sanitize(name)}' is not a package name"
        raise make_config_error("conda-name", message, at=at, fix=EXAMPLE)
    return name.lower(), body[len(name) :]


def _split_build(rest: str, *, whole: str, at: Location) -> tuple[str, str]:
    """The part after the name to version and build, with or without spaces (`=1.2=py_0`, ` >=1.2 py_0`)."""
    version, *more = rest.strip().split(" ")
    if " - " in whole:
        items = [sanitize(item) for item in whole.split(" - ")]
        message = f"the line after '{items[0]}' is indented further, and is read as a part of it"
        fix = f"begin '- {items[1]}' in the column of '- {items[0]}'"
        if items[0] == "pip":
            message = "'- pip' has no colon: the packages below it are read as a part of it"
            fix = f"write '- pip:', with '- {items[1]}' indented below it"
            raise make_config_error("conda-words", message, at=at, fix=fix, edit=make_edit(at, "pip", "pip:"))
        raise make_config_error("conda-words", message, at=replace(at, line=at.line + 1 if at.line else None), fix=fix)
    if len(more) > 1 or (rest.startswith(" ") and re.match(r"[A-Za-z_]", version)):
        message = f"'{sanitize(whole)}' is not one package with one version"
        raise make_config_error("conda-words", message, at=at, fix="write one package an item, as in 'numpy>=1.2,<2'")
    build = more[0] if more else ""
    match = re.fullmatch(r"(.*[^=<>!~,|])=([^=<>!~,|]*)", version)
    if match:
        version = match[1]
        build = match[2] if not build else f"{match[2]} {build}"
    if match and not build:
        message = f"'{sanitize(whole)}' ends where a build string is expected"
        fix = "write NAME=VERSION=BUILD, or leave the last '=' out"
        raise make_config_error("conda-build", message, at=at, fix=fix)
    if (match or more) and not BUILD.fullmatch(build):
        message = f"'{sanitize(build)}' in '{sanitize(whole)}' is not a build string"
        raise make_config_error("conda-build", message, at=at, fix="write NAME=VERSION=BUILD, or leave the build out")
    return version, build


def _parse_version(version: str, *, whole: str, at: Location, exact: bool = False) -> str:
    """Check a constraint and give every part of it an operator."""
    if not version:
        return ""
    if COMMA.fullmatch(version):
        message = (
            f"'{sanitize(version)}' in '{sanitize(whole)}' has a comma between its numbers: no version is all of them"
        )
        right = version.replace(",", ".")
        fix = f"write '{right}'"
        raise make_config_error("conda-version", message, at=at, fix=fix, edit=make_edit(at, version, right))
    parts = []
    for part in re.split(r"([,|])", version):
        if part in (",", "|"):
            parts.append(part)
            continue
        match = CONSTRAINT.fullmatch(part)
        if part.startswith(("=>", "=<")):
            message = f"'{part[:2]}' in '{sanitize(whole)}' is not an operator"
            raise make_config_error(
                "conda-version", message, at=at, fix=f"write '{part[1]}='", edit=make_edit(at, part[:2], f"{part[1]}=")
            )
        if match is None:
            message = f"'{sanitize(version)}' in '{sanitize(whole)}' is not a version"
            raise make_config_error("conda-version", message, at=at, fix=EXAMPLE)
        operator, number = match.groups()
        plain = "=" if "*" in number else "=="
        if operator is None or (operator == "=" and exact):
            operator = plain
        parts.append("*" if number == "*" else operator + number)
    return "" if parts == ["*"] else "".join(parts)


def _parse_fields(bracket: str, *, whole: str, at: Location) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(bracket):
        match = FIELD.match(bracket, position)
        if match is None:
            message = f"'[{sanitize(bracket)}]' in '{sanitize(whole)}' is not understood"
            fix = f"extras such as [test] are pip's: {PIP_FIX}; conda knows [version=..., build=..., channel=...]"
            raise make_config_error("conda-bracket", message, at=at, fix=fix)
        key, value = match[1], match[2].strip("'\"").strip()
        if key not in FIELDS:
            message = f"'{key}' in '{sanitize(whole)}' cannot be used here"
            raise make_config_error(
                "conda-field",
                message,
                at=at,
                fix=suggest_name(key, known=FIELDS, noun="known"),
                edit=make_edit(at, key, find_typo(key, known=FIELDS)),
            )
        if key in found:
            fix = "keep one of them"
            raise make_config_error("conda-field", f"'{key}' occurs twice in '{sanitize(whole)}'", at=at, fix=fix)
        found[key] = value
        position = match.end()
    return found


def _from_fields(name: str, fields: dict[str, str], *, whole: str, at: Location) -> CondaSpec:
    """Write a bracket spec in the plain form: `channel::name version build`."""
    if "url" in fields:
        spec = _parse_package_url(fields["url"], at=at)
        if spec.name != name:
            message = f"'{sanitize(whole)}' names '{name}', its address '{spec.name}'"
            raise make_config_error("conda-url", message, at=at, fix="give both one name")
        return spec
    version, build = fields.get("version", ""), fields.get("build", "")
    version = _parse_version(re.sub(r"\s+", "", version), whole=whole, at=at)
    if build and not BUILD.fullmatch(build):
        message = f"'{sanitize(build)}' in '{sanitize(whole)}' is not a build string"
        raise make_config_error("conda-build", message, at=at, fix="letters, digits and _.+* only")
    if build and re.fullmatch(r"=[^=,|*]+", version):
        version += ".*"  # in the plain form a build makes '=1.2' mean exactly 1.2
    channel = fields.get("channel", "")
    if channel:
        check_channel(channel, at=at)
    text = " ".join(filter(None, (name, version or ("*" if build else ""), build)))
    return CondaSpec(
        text=f"{channel}::{text}" if channel else text,
        name=name,
        version=version,
        build=build,
        channel=channel,
        line=at.line,
    )


def join_conda(specs: list[CondaSpec], *, ats: list[Location]) -> tuple[tuple[CondaSpec, ...], ConfigError | None]:
    """Make package names unique: a repeat that adds nothing is dropped, two different constraints are a fault."""
    kept: dict[str, CondaSpec] = {}
    faults: list[Finding] = []
    for spec, at in zip(specs, ats, strict=True):
        before = kept.get(spec.name)
        if before is None or before.text == before.name:
            kept[spec.name] = spec
        elif spec.text != spec.name and spec.text != before.text:
            first = f"'{sanitize(before.text)}' in line {before.line}"
            message = f"'{spec.name}' is listed twice: {first}, then '{sanitize(spec.text)}'"
            faults += make_config_error("conda-twice", message, at=at, fix="keep one line for each package").findings
    return tuple(kept.values()), ConfigError(*faults) if faults else None
