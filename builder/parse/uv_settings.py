"""`[tool.uv]` of a pyproject.toml: where packages come from, and what else of it decides about an environment.

Source: uv's documentation, "Managing dependencies", "Package indexes" and "Settings" (read 2026-11-23).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from packaging.utils import canonicalize_name

from builder.model.finding import ConfigError, find_nearest, find_typo, suggest_name
from builder.model.recipe import PipRequirement
from builder.model.text import exists, make_config_error, sanitize
from builder.parse.project import PROCESSORS, ProjectReader, decide_marker
from builder.parse.requirement import parse_location, parse_requirement
from builder.parse.yaml import Listing, Table, Text, Value

KEY = "tool.uv"
KINDS = ("git", "index", "path", "url", "workspace")  # of a source: it has one of them
REST = ("branch", "editable", "extra", "group", "marker", "rev", "subdirectory", "tag")
TORCH_HOST = "download.pytorch.org"
MEMBERS_LIMIT, DEPTH_LIMIT = 1_000, 4  # folders of a workspace, and of a path to one
# What changes the result of uv and cannot be said to an installer in an image.
REFUSED = {
    "override-dependencies": "write the version that you want into the dependencies",
    "exclude-dependencies": "an installer takes what a package requires: leave out the package that requires it",
}
# Those that are read; a misspelt one is not ignored.
SETTINGS = (
    "constraint-dependencies", "dev-dependencies", "extra-index-url", "find-links", "index", "index-url", "no-binary",
    "no-binary-package", "no-build", "no-build-package", "no-index", "prerelease", "sources", "workspace",
)  # fmt: skip
FLAGS = ("no-binary", "no-build", "no-index")
TEXTS = ("index-url", "prerelease")
LISTS = ("dev-dependencies", "extra-index-url", "find-links", "no-binary-package", "no-build-package")
SOURCE_FLAGS = ("editable", "workspace")
IGNORED = {
    "no-build-isolation": 'below [tool.recipe]: run = ["python -m pip install --no-build-isolation NAME"]',
    "no-build-isolation-package": 'below [tool.recipe]: run = ["python -m pip install --no-build-isolation NAME"]',
    "extra-build-dependencies": "install the package in the list 'run' of [tool.recipe]",
    "exclude-newer": "`recipe lock` records exact files",
    "exclude-newer-package": "`recipe lock` records exact files",
    "dependency-metadata": "the installer reads it from the package itself",
}


@dataclass(frozen=True, kw_only=True)
class NamedIndex:
    """An index of packages by its name."""

    name: str
    url: str
    line: int
    key: str
    explicit: bool = False
    default: bool = False
    flat: bool = False


class UvSettings:
    """The settings of uv that decide what is installed; faults are added to the reader of the project."""

    def __init__(self, project: ProjectReader, table: Table) -> None:
        self.project, self.table = project, table
        self.sources = {
            canonicalize_name(name.raw): (name, value)
            for name, value in project.find_table(table, "sources", key=KEY).entries
        }
        self.indexes = {index.name: index for index in self._read_indexes()}
        self.used: set[str] = set()  # explicit indexes that a source names

    def apply(self) -> None:
        """Add the options of all settings but the sources; to be called after the requirements."""
        self._check_types()
        for index in self.indexes.values():
            if not index.explicit or index.name in self.used:
                name = "find-links" if index.flat else "index-url" if index.default else "extra-index-url"
                self._add_option(name, index.url, line=index.line, key=index.key)
        for name, option in (("index-url", "index-url"), ("extra-index-url", "extra-index-url")):
            self._add_options(name, option)
        self._add_options("find-links", "find-links")
        for name, option in (("no-binary-package", "no-binary"), ("no-build-package", "only-binary")):
            self._add_options(name, option)
        for name, option in (("no-index", "no-index"), ("no-binary", "no-binary"), ("no-build", "only-binary")):
            value = self.table.get(name)
            if isinstance(value, Text) and _is_true(value):
                self._add_option(option, "" if name == "no-index" else ":all:", line=value.line, key=f"{KEY}.{name}")
        value = self.table.get("prerelease")
        if isinstance(value, Text) and value.raw == "allow":
            self._add_option("pre", "", line=value.line, key=f"{KEY}.prerelease")
        for item, key in self.project.list_texts(
            self.table.get("constraint-dependencies"), key=f"{KEY}.constraint-dependencies", what="requirements"
        ):
            self._add_constraint(item, key=key)
        self._report_settings()

    def _check_types(self) -> None:
        """Report values of another type than uv's, also where no requirement asks for them."""
        for name in FLAGS:
            self._has_type(self.table, name, key=KEY, flag=True)
        for name in TEXTS:
            self._has_type(self.table, name, key=KEY)
        for name in LISTS:
            value, key = self.table.get(name), f"{KEY}.{name}"
            if value is not None and not isinstance(value, Listing):
                fix = 'write it in brackets, as in ["..."]'
                self.project.decoder.add_wrong_type(value, "a list", key=key, fix=fix)
        self.project.find_table(self.table, "workspace", key=KEY)
        for written, source in self.sources.values():
            self._list_sources(source, key=f"{KEY}.sources.{sanitize(written.raw)}")

    def _has_type(self, table: Table, name: str, *, key: str, flag: bool = False) -> bool:
        """Whether a key is missing, or a text (true or false where it is a `flag`); else the fault is added."""
        value, kind = table.get(name), "bool" if flag else "text"
        if value is None or (isinstance(value, Text) and value.kind == kind):
            return True
        fix = (
            "write true or false" if flag else "put it in quotes" if isinstance(value, Text) else "write one in quotes"
        )
        expected = "true or false" if flag else "a text"
        self.project.decoder.add_wrong_type(value, expected, key=f"{key}.{name}", fix=fix)
        return False

    def _report_settings(self) -> None:
        for name, value in self.table.entries:
            key = f"{KEY}.{sanitize(name.raw)}"
            if name.raw not in SETTINGS and (near := find_typo(name.raw, known=SETTINGS)):
                message, fix = f"unknown key '{sanitize(name.raw)}'", f"did you mean '{near}'?"
                self.project.add_fault("unknown-key", message, line=name.line, key=key, fix=fix)
            empty = isinstance(value, Listing) and not value.items
            if name.raw in REFUSED and not empty:
                message = f"'{name.raw}' changes what packages require, and an installer in an image cannot do that"
                self.project.add_fault("uv-setting", message, line=name.line, key=key, fix=REFUSED[name.raw])
            elif name.raw in IGNORED and not empty:
                message = f"'{name.raw}' is not used in the build of an image"
                self.project.add_warning("uv-setting", message, line=name.line, key=key, fix=IGNORED[name.raw])

    def _add_constraint(self, item: Text, *, key: str) -> None:
        at = self.project.locate(item.line, key)
        try:
            self.project.reader.add_requirement(self.project.read_requirement(item.raw, at=at), at=at, constraint=True)
        except ConfigError as error:
            self.project.add_error(error)

    def _add_options(self, name: str, option: str) -> None:
        value, key = self.table.get(name), f"{KEY}.{name}"
        if isinstance(value, Text) and value.kind == "text" and name in TEXTS:
            self._add_option(option, value.raw, line=value.line, key=key)
        elif isinstance(value, Listing) and name in LISTS:
            for item, place in self.project.list_texts(value, key=key, what="values"):
                self._add_option(option, item.raw, line=item.line, key=place)

    def _add_option(self, name: str, value: str, *, line: int, key: str) -> None:
        at = self.project.locate(line, key)
        try:
            self.project.reader.add_option(name, value, at=at, base=self.project.path.parent)
        except ConfigError as error:
            self.project.add_error(error)

    def _read_indexes(self) -> list[NamedIndex]:
        value, found = self.table.get("index"), list[NamedIndex]()
        if value is not None and not isinstance(value, Listing):
            fix = "write [[tool.uv.index]]"
            self.project.decoder.add_wrong_type(value, "a list of tables", key=f"{KEY}.index", fix=fix)
        for number, item in enumerate(value.items if isinstance(value, Listing) else ()):
            key = f"{KEY}.index[{number}]"
            if not isinstance(item, Table):
                self.project.decoder.add_wrong_type(item, "a table of keys", key=key, fix="write [[tool.uv.index]]")
                continue
            right = [self._has_type(item, flag, key=key, flag=True) for flag in ("explicit", "default")]
            right += [self._has_type(item, name, key=key) for name in ("url", "name", "format")]
            if not all(right):
                continue
            url = self.project.get_text(item, "url", key=key)
            if not url:
                message = "an index has no address"
                self.project.add_fault("uv-index", message, line=item.line, key=key, fix='add url = "https://..."')
                continue
            name = self.project.get_text(item, "name", key=key) or f" {number}"
            form = self.project.get_text(item, "format", key=key)
            flags = {flag: _is_true(item.get(flag)) for flag in ("explicit", "default")}
            found.append(NamedIndex(name=name, url=url, line=item.line, key=key, flat=form == "flat", **flags))
        return found

    def resolve_source(self, requirement: PipRequirement, *, origin: str) -> PipRequirement:
        """The requirement from where its source says; `origin` is `extra NAME`, `group NAME` or "".

        Raises ConfigError for a source that no installer in an image can use.
        """
        found = self.sources.get(canonicalize_name(requirement.name))
        if found is None or requirement.url:
            return requirement
        name, value = found
        key = f"{KEY}.sources.{sanitize(name.raw)}"
        chosen = [
            (item, place)
            for item, place in self._list_sources(value, key=key)
            if self._is_for(item, origin=origin) and self._holds(item, key=place)
        ]
        if not chosen:
            return requirement
        if len(chosen) > 1 and not all(item.get("index") for item, _ in chosen):
            message = f"'{requirement.name}' has several sources on Linux"
            at = self.project.locate(chosen[1][0].line, chosen[1][1])
            raise make_config_error("uv-source", message, at=at, fix="give each a marker, so that one is left")
        for item, place in chosen:
            requirement = self._take_source(item, requirement, key=place)
        return requirement

    def _list_sources(self, value: Value, *, key: str) -> list[tuple[Table, str]]:
        items = value.items if isinstance(value, Listing) else (value,)
        found = []
        for index, item in enumerate(items):
            place = f"{key}[{index}]" if isinstance(value, Listing) else key
            if isinstance(item, Table):
                texts = [name for name in (*KINDS, *REST) if name not in SOURCE_FLAGS]
                right = [self._has_type(item, name, key=place, flag=True) for name in SOURCE_FLAGS]
                right += [self._has_type(item, name, key=place) for name in texts]
                found += [(item, place)] if all(right) else []
                continue
            fix = 'write it as in { git = "https://..." } or { path = "../NAME" }'
            self.project.decoder.add_wrong_type(item, "a table of keys", key=place, fix=fix)
        return found

    def _is_for(self, item: Table, *, origin: str) -> bool:
        """Whether a source is for the extra or the group that a requirement is of."""
        wanted = [f"{kind} {canonicalize_name(value.raw)}" for kind in ("extra", "group")
                  if isinstance(value := item.get(kind), Text)]  # fmt: skip
        return not wanted or origin in wanted

    def _holds(self, item: Table, *, key: str) -> bool:
        """Whether the marker of a source holds on Linux; it may not depend on the processor or the Python."""
        value = item.get("marker")
        if not isinstance(value, Text):
            return True
        at = self.project.locate(value.line, f"{key}.marker")
        found = {decide_marker(value.raw, arch=arch, at=at) for arch in PROCESSORS}
        if len(found) > 1 or None in found:
            if self._is_torch(item):
                return True
            message = f"the source depends on '{sanitize(value.raw)}', and one file is read for all sites"
            fix = "give sources by extras (extra = \"NAME\"), or 'NAME @ ADDRESS ; MARKER' as two requirements"
            raise make_config_error("uv-source", message, at=at, fix=fix)
        return True in found

    def _is_torch(self, item: Table) -> bool:
        value = item.get("index")
        index = self.indexes.get(value.raw) if isinstance(value, Text) else None
        return index is not None and TORCH_HOST in index.url

    def _take_source(self, item: Table, requirement: PipRequirement, *, key: str) -> PipRequirement:
        self._check_keys(item, key=key)
        kinds = [kind for kind in KINDS if item.get(kind) is not None]
        at = self.project.locate(item.line, key)
        if len(kinds) != 1:
            message = f"a source has one of {', '.join(KINDS)}, found {' and '.join(kinds) or 'none'}"
            raise make_config_error("uv-source", message, at=at, fix="keep one of them")
        if kinds[0] == "index":
            self._use_index(item, requirement, key=key)
            return requirement
        if kinds[0] == "workspace":
            return self._take_path(
                self._find_member(requirement, key=key, line=item.line), requirement, key=key, item=item
            )
        if kinds[0] == "path":
            return self._take_path(self.project.get_text(item, "path", key=key), requirement, key=key, item=item)
        address = self.project.get_text(item, kinds[0], key=key)
        inside = self.project.get_text(item, "subdirectory", key=key)
        if kinds[0] == "git":
            found = [name for name in ("rev", "tag", "branch") if item.get(name) is not None]
            if len(found) > 1:
                message = f"a source has one of rev, tag and branch, found {' and '.join(found)}"
                raise make_config_error("uv-source", message, at=at, fix="keep one of them")
            ref = self.project.get_text(item, found[0], key=key) if found else ""
            address = f"git+{address.removeprefix('git+')}" + (f"@{ref}" if ref else "")
        address += f"#subdirectory={inside}" if inside else ""
        return replace(parse_requirement(join_address(requirement, address), at=at), line=requirement.line)

    def _check_keys(self, item: Table, *, key: str) -> None:
        for name, _ in item.entries:
            if name.raw not in (*KINDS, *REST):
                word = sanitize(name.raw)
                fix = suggest_name(name.raw, known=(*KINDS, *REST))
                self.project.add_fault(
                    "unknown-key", f"unknown key '{word}'", line=name.line, key=f"{key}.{word}", fix=fix
                )

    def _use_index(self, item: Table, requirement: PipRequirement, *, key: str) -> None:
        """Note that an index is used; raises ConfigError for one that is unknown, or for this package alone."""
        name = self.project.get_text(item, "index", key=key)
        at = self.project.locate(item.line, key)
        index = self.indexes.get(name)
        if index is None:
            near = find_nearest(name, known=self.indexes)
            fix = f"did you mean '{near}'?" if near else f'add [[tool.uv.index]] with name = "{sanitize(name)}"'
            raise make_config_error("uv-index", f"there is no index '{sanitize(name)}'", at=at, fix=fix)
        if index.explicit and TORCH_HOST not in index.url:
            message = f"the index '{sanitize(name)}' is explicit, for '{requirement.name}' alone: pip has no such index"
            fix = "remove 'explicit = true', and all packages are looked for there, too; or give the wheel by its url"
            raise make_config_error("uv-index", message, at=at, fix=fix)
        self.used.add(name)

    def _take_path(self, path: str, requirement: PipRequirement, *, key: str, item: Table) -> PipRequirement:
        at = self.project.locate(item.line, key)
        inside = self.project.get_text(item, "subdirectory", key=key)
        if inside:
            message = "a path has no subdirectory here"
            raise make_config_error(
                "uv-source", message, at=at, fix=f'write path = "{sanitize(path)}/{sanitize(inside)}"'
            )
        return make_local(
            path, requirement, editable=_is_true(item.get("editable")), project=self.project, key=key, line=item.line
        )

    def _find_member(self, requirement: PipRequirement, *, key: str, line: int) -> str:
        """The folder of a member of this workspace; raises ConfigError where it is not found."""
        workspace = self.project.find_table(self.table, "workspace", key=KEY)
        forms = self.project.list_texts(workspace.get("members"), key=f"{KEY}.workspace.members", what="folders")
        home = self.project.path.parent
        for form, _ in forms:
            for folder in _list_folders(home, form.raw):
                if _read_name(folder) == requirement.name:
                    return str(folder.relative_to(home))
        here = "no member of this workspace has that name" if forms else "this file lists no workspace"
        message = f"'{requirement.name}' is a member of a uv workspace, and {here}"
        at = self.project.locate(line, key)
        fix = f"write {{ path = \"FOLDER\" }} with the folder of '{requirement.name}'"
        raise make_config_error("uv-source", message, at=at, fix=fix)


def make_local(
    path: str, requirement: PipRequirement, *, editable: bool, project: ProjectReader, key: str, line: int
) -> PipRequirement:
    """A requirement from a folder or file of this machine; raises ConfigError where it is missing or no package."""
    at = project.locate(line, key)
    extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
    path = path.removesuffix("/") or "."
    plain = path if path.startswith((".", "/")) else f"./{path}"
    found = parse_location(f"{plain}{extras}", editable=editable, at=at)
    return replace(found, name=requirement.name, marker=requirement.marker, line=requirement.line)


def join_address(requirement: PipRequirement, address: str) -> str:
    """The text of a requirement with an address."""
    extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
    return f"{requirement.name}{extras} @ {address}" + (f" ; {requirement.marker}" if requirement.marker else "")


def _is_true(value: Value | None) -> bool:
    return isinstance(value, Text) and value.kind == "bool" and value.raw == "true"


def _list_folders(home: Path, form: str) -> list[Path]:
    """The folders of a workspace that a form such as `packages/*` names; none for one that leads out of it."""
    parts = form.split("/")
    if not form.strip() or len(parts) > DEPTH_LIMIT or {"", "..", "**"} & {*parts} or "\0" in form:
        return []
    return sorted(islice(home.glob(form), MEMBERS_LIMIT))


def _read_name(folder: Path) -> str:
    """The name of the project in a folder, "" where there is none: enough of its file is read."""
    from builder.parse.toml import SIZE_LIMIT, parse_toml
    from builder.parse.yaml import read_text

    path = folder / "pyproject.toml"
    if not exists(path):
        return ""
    try:
        tree = parse_toml(read_text(path, what="project", limit=SIZE_LIMIT), file=str(path))
    except ConfigError:
        return ""
    project = tree.get("project")
    name = project.get("name") if isinstance(project, Table) else None
    return canonicalize_name(name.raw) if isinstance(name, Text) and re.fullmatch(r"[\w.-]+", name.raw) else ""
