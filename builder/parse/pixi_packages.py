"""One package of a pixi manifest: a conda package, or one of PyPI."""

from __future__ import annotations

import re
from dataclasses import replace

from packaging.specifiers import SpecifierSet

from builder.model.finding import Location, suggest_name
from builder.model.recipe import CondaSpec, PipRequirement
from builder.model.text import make_config_error, sanitize
from builder.parse.matchspec import parse_conda_spec
from builder.parse.project import ProjectReader
from builder.parse.requirement import parse_requirement
from builder.parse.uv_settings import TORCH_HOST, join_address, make_local
from builder.parse.yaml import Table, Text, Value, describe

CONDA_KEYS = ("build", "channel", "url", "version")
SOURCE_KEYS = ("git", "path")
# What only narrows the choice among equal packages: a build string can say it.
UNREAD = ("build-number", "file-name", "license", "md5", "sha256", "subdir")
PYPI_KEYS = (
    "branch", "editable", "env-markers", "extras", "git", "index", "path", "rev", "subdirectory", "tag", "url",
    "version",
)  # fmt: skip


def read_conda(project: ProjectReader, name: str, value: Value, *, key: str, at: Location) -> CondaSpec:
    """Read a conda package; raises ConfigError."""
    if isinstance(value, Text) and value.kind == "text":
        text = value.raw.strip()
        return parse_conda_spec(name if text in ("", "*") else f"{name} {''.join(text.split())}", at=at)
    if not isinstance(value, Table):
        message = f"expected a version, found {describe(value)}"
        word = f'"{sanitize(value.raw)}"' if isinstance(value, Text) else '"*"'
        raise make_config_error("wrong-type", message, at=at, fix=f"put it in quotes: {name} = {word}")
    for entry, _ in value.entries:
        if entry.raw in SOURCE_KEYS:
            message = f"'{name}' is a package that pixi builds from its sources"
            fix = "give a package of a channel; a Python package belongs below [pypi-dependencies]"
            raise make_config_error("pixi-package", message, at=replace(at, line=entry.line), fix=fix)
        if entry.raw in UNREAD:
            message = f"'{entry.raw}' of a conda package is not read here"
            fix = "remove it, or choose the package by version and build"
            raise make_config_error("pixi-package", message, at=replace(at, line=entry.line), fix=fix)
        if entry.raw not in CONDA_KEYS:
            fix = suggest_name(entry.raw, known=CONDA_KEYS)
            message = f"unknown key '{sanitize(entry.raw)}'"
            raise make_config_error("unknown-key", message, at=replace(at, line=entry.line), fix=fix)
    fields = {word: project.get_text(value, word, key=key) for word in CONDA_KEYS}
    if fields["url"]:
        return parse_conda_spec(fields["url"], at=at)
    given = ",".join(f"{word}='{text}'" for word, text in fields.items() if text and text != "*")
    return parse_conda_spec(f"{name}[{given}]" if given else name, at=at)


def read_pypi(project: ProjectReader, name: str, value: Value, *, key: str, at: Location) -> PipRequirement:
    """Read a package of PyPI; raises ConfigError."""
    if isinstance(value, Text) and value.kind == "text":
        return project.read_requirement(name + _read_version(value.raw, at=at), at=at)
    if not isinstance(value, Table):
        message = f"expected a version, found {describe(value)}"
        word = f'"=={sanitize(value.raw)}"' if isinstance(value, Text) else '"*"'
        raise make_config_error("wrong-type", message, at=at, fix=f"put it in quotes: {name} = {word}")
    for entry, _ in value.entries:
        if entry.raw not in PYPI_KEYS:
            fix = suggest_name(entry.raw, known=PYPI_KEYS)
            message = f"unknown key '{sanitize(entry.raw)}'"
            raise make_config_error("unknown-key", message, at=replace(at, line=entry.line), fix=fix)
    extras = [item.raw for item, _ in project.list_texts(value.get("extras"), key=f"{key}.extras", what="extras")]
    marker = project.get_text(value, "env-markers", key=key)
    text = name + (f"[{','.join(extras)}]" if extras else "")
    text += _read_version(project.get_text(value, "version", key=key), at=at) + (f" ; {marker}" if marker else "")
    requirement = project.read_requirement(text, at=at)
    if value.get("index") is not None:
        _use_index(project, requirement, project.get_text(value, "index", key=key), at=at)
    return _take_source(project, requirement, value, key=key, at=at)


def _read_version(text: str, *, at: Location) -> str:
    """A constraint of PEP 440, "" for any version; raises ConfigError."""
    text = "".join(text.split())
    if text in ("", "*"):
        return ""
    try:
        SpecifierSet(text)
    except ValueError:  # of a number of thousands of digits, too
        message = f"'{sanitize(text)}' is not a range of versions of PyPI"
        right = f"=={text}" if re.fullmatch(r"[0-9][0-9a-z.*]*", text) else ">=1.2,<2"
        raise make_config_error("pip-form", message, at=at, fix=f"write it as in '{sanitize(right)}'") from None
    return text


def _use_index(project: ProjectReader, requirement: PipRequirement, url: str, *, at: Location) -> None:
    if TORCH_HOST not in url:
        message = f"the index is for '{requirement.name}' alone: pip has no such index"
        fix = 'write it below [pypi-options]: extra-index-urls = ["https://..."]; or give the wheel by its url'
        raise make_config_error("pixi-index", message, at=at, fix=fix)
    project.reader.add_option("extra-index-url", url, at=at, base=project.path.parent)


def _take_source(
    project: ProjectReader, requirement: PipRequirement, value: Table, *, key: str, at: Location
) -> PipRequirement:
    kinds = [kind for kind in ("git", "path", "url") if value.get(kind) is not None]
    if not kinds:
        return requirement
    if len(kinds) > 1:
        message = f"a package has one of git, path and url, found {' and '.join(kinds)}"
        raise make_config_error("pixi-package", message, at=at, fix="keep one of them")
    address = project.get_text(value, kinds[0], key=key)
    if kinds[0] == "path":
        flag = value.get("editable")
        editable = isinstance(flag, Text) and flag.raw == "true"
        return make_local(address, requirement, editable=editable, project=project, key=key, line=at.line or 1)
    if kinds[0] == "git":
        refs = [word for word in ("rev", "tag", "branch") if value.get(word) is not None]
        if len(refs) > 1:
            message = f"a package has one of rev, tag and branch, found {' and '.join(refs)}"
            raise make_config_error("pixi-package", message, at=at, fix="keep one of them")
        ref = project.get_text(value, refs[0], key=key) if refs else ""
        address = f"git+{address.removeprefix('git+')}" + (f"@{ref}" if ref else "")
        inside = project.get_text(value, "subdirectory", key=key)
        address += f"#subdirectory={inside}" if inside else ""
    return replace(parse_requirement(join_address(requirement, address), at=at), line=requirement.line)
