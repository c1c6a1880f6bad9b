"""A pyproject.toml to the normal form of a recipe: dependencies, extras and groups of a Python project.

Sources: the specifications pyproject.toml (PEP 621), dependency specifiers (PEP 508) and dependency groups (PEP 735).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from packaging.utils import canonicalize_name

from builder.model.finding import ConfigError, Location, suggest_name
from builder.model.recipe import InputChoice, PipRequirement, Recipe
from builder.model.text import make_config_error, sanitize
from builder.parse.project import PROCESSORS, ProjectReader, decide_marker
from builder.parse.requirement import parse_location
from builder.parse.uv_settings import UvSettings
from builder.parse.yaml import Listing, Table, Text, Value

EXPORT = "run `poetry export -o requirements.txt`, and give that file"
COMPILE = "run `uv pip compile pyproject.toml -o requirements.txt`, and give that file"
PARTS_LIMIT = 50  # extras and groups that name each other
MANY = f"more than {PARTS_LIMIT} extras or groups name each other"
ITEM = 'write it as in "pytest>=8" or { include-group = "NAME" }'
KEYS = ("build-system", "dependency-groups", "project", "tool")
PROJECT_KEYS = (
    "authors", "classifiers", "dependencies", "description", "dynamic", "entry-points", "gui-scripts", "import-names",
    "import-namespaces", "keywords", "license", "license-files", "maintainers", "name", "optional-dependencies",
    "readme", "requires-python", "scripts", "urls", "version",
)  # fmt: skip
Parts = dict[str, tuple[Text, Value]]  # extras or groups by their normal names


class PyprojectReader(ProjectReader):
    """A pyproject.toml with a `[project]` table or dependency groups."""

    def __init__(self, path: Path, *, file: str, tree: Table, choice: InputChoice) -> None:
        super().__init__(path, file=file, tree=tree, choice=choice)
        self.project = self.find_table(tree, "project")
        self.name = self.get_text(self.project, "name", key="project")
        self.normal = canonicalize_name(self.name)
        self.extras = self._list_parts(self.find_table(self.project, "optional-dependencies", key="project"))
        self.groups = self._list_parts(self.find_table(tree, "dependency-groups"))
        self.uv = UvSettings(self, self.find_table(tree, "tool", "uv"))
        self.taken: set[str] = set()  # extras and groups that were read
        self.inside: list[str] = []  # the extras that are being read, the outermost first

    def read_recipe(self) -> Recipe:
        """Read the file; raises ConfigError with all its faults."""
        self._check_kind()
        self.check_keys(self.tree, known=KEYS, key="")
        self.check_keys(self.project, known=PROJECT_KEYS, key="project", strict=True)
        self._read_list(self.project.get("dependencies"), key="project.dependencies", origin="")
        for name in self.choice.extras:
            self._read_extra(name, asked="--extra")
        for name in self.choice.groups:
            self._read_group(name, asked="--group")
        if self.choice.project:
            self._add_project()
        self.uv.apply()
        python = self.read_python(self.project.get("requires-python"), key="project.requires-python")
        if not self.reader.requirements and not self.decoder.findings and not self.reader.findings:
            self._report_empty()
        conda = [(python, self.locate(python.line or 1, "project.requires-python"))] if python else []
        return self.make_recipe(name=self.choose_name(self.name), conda=conda)

    def _list_parts(self, table: Table) -> Parts:
        return {canonicalize_name(name.raw): (name, value) for name, value in table.entries}

    def _check_kind(self) -> None:
        """Raise ConfigError for a project of Poetry alone, and for dependencies that another file lists."""
        if self.tree.get("project") is None and self.tree.get("dependency-groups") is None:
            poetry = self.find_table(self.tree, "tool", "poetry")
            if poetry.get("dependencies") is not None:
                at = Location(file=self.file, line=poetry.get_line("dependencies"), key="tool.poetry.dependencies")
                message = "this is a project of Poetry alone, without the [project] table that other tools read"
                raise make_config_error("project-poetry", message, at=at, fix=EXPORT)
            message = "the file has no [project] table and no [dependency-groups]: it lists no dependencies"
            fix = 'write them below [project]: dependencies = ["numpy>=2"]; or give an environment.yml'
            raise make_config_error("project-table", message, at=Location(file=self.file), fix=fix)
        for item, key in self.list_texts(self.project.get("dynamic"), key="project.dynamic", what="keys"):
            if item.raw in ("dependencies", "optional-dependencies"):
                message = f"'{item.raw}' is dynamic: the build of the project finds it, which is not run here"
                self.add_fault("project-dynamic", message, line=item.line, key=key, fix=self._find_file() or COMPILE)

    def _find_file(self) -> str:
        """The fix for dynamic dependencies that setuptools reads from a file."""
        found = self.find_table(self.tree, "tool", "setuptools", "dynamic", "dependencies").get("file")
        item = found.items[0] if isinstance(found, Listing) and len(found.items) == 1 else found
        return f"give the file that it names: '{sanitize(item.raw)}'" if isinstance(item, Text) else ""

    def _report_empty(self) -> None:
        parts = [f"--extra {name}" for name in self.extras] + [f"--group {name}" for name in self.groups]
        fix = 'write them below [project]: dependencies = ["numpy>=2"]'
        fix = f"choose one of these: {', '.join(map(sanitize, parts[:8]))}; or {fix}" if parts else fix
        line = self.project.get_line("dependencies")
        self.add_fault(
            "recipe-empty", "the project has no dependencies", line=line, key="project.dependencies", fix=fix
        )

    def _read_list(self, value: Value | None, *, key: str, origin: str) -> None:
        for item, place in self.list_texts(value, key=key, what="requirements"):
            self._read_item(item, key=place, origin=origin)

    def _read_item(self, item: Text, *, key: str, origin: str) -> None:
        at = self.locate(item.line, key)
        try:
            requirement = self.read_requirement(item.raw, at=at)
            if (
                self.normal
                and requirement.name == self.normal
                and not requirement.url
                and self._read_itself(requirement, origin=origin)
            ):
                return
            requirement = self.uv.resolve_source(requirement, origin=origin)
            self.reader.add_requirement(requirement, at=at)
        except ConfigError as error:
            self.add_error(error)

    def _read_itself(self, requirement: PipRequirement, *, origin: str) -> bool:
        """Read the extras of a project that requires itself, as in `all = ["NAME[io,plots]"]`."""
        if requirement.marker:
            at = self.locate(requirement.line or 1, "")
            if not any(decide_marker(requirement.marker, arch=arch, at=at) is not False for arch in PROCESSORS):
                return True
        for extra in requirement.extras:
            self._read_extra(extra, asked="", line=requirement.line)
        if origin.startswith("group ") and requirement.name not in self.uv.sources:
            self._add_project()
        return origin.startswith("extra ") or requirement.name not in self.uv.sources

    def _read_extra(self, name: str, *, asked: str, line: int | None = None) -> None:
        found = self.extras.get(canonicalize_name(name))
        if found is None:
            self._report_unknown("extra", name, self.extras, asked=asked, line=line)
        elif len(self.taken) > PARTS_LIMIT:
            self.add_fault("project-extra", MANY, line=line or found[0].line, key="", fix="choose fewer")
        elif (origin := f"extra {canonicalize_name(name)}") not in self.taken:
            self.taken.add(origin)
            self.inside.append(origin)
            self._read_list(found[1], key=f"project.optional-dependencies.{sanitize(found[0].raw)}", origin=origin)
            self.inside.pop()
        elif origin in self.inside:
            key = f"project.optional-dependencies.{sanitize(found[0].raw)}"
            message = f"the extra '{sanitize(found[0].raw)}' requires itself in a circle: its packages are taken once"
            fix = f"remove '{sanitize(self.name)}[...]' from one of the extras of the circle"
            self.add_warning("project-extra", message, line=line or found[0].line, key=key, fix=fix)

    def _read_group(self, name: str, *, asked: str, line: int | None = None, inside: tuple[str, ...] = ()) -> None:
        normal = canonicalize_name(name)
        found = self.groups.get(normal)
        if found is None and normal == "dev":
            legacy = self.find_table(self.tree, "tool", "uv").get("dev-dependencies")
            found = (Text(raw="dev", line=legacy.line), legacy) if legacy is not None else None
        if found is None:
            self._report_unknown("group", name, self.groups, asked=asked, line=line)
            return
        key = f"dependency-groups.{sanitize(found[0].raw)}"
        if len(inside) > PARTS_LIMIT:
            self.add_fault("project-group", MANY, line=line or found[0].line, key=key, fix="choose fewer")
        elif normal in inside:
            message = f"the group '{sanitize(name)}' includes itself in a circle"
            fix = "remove one of the 'include-group' items"
            self.add_fault("project-group", message, line=line or found[0].line, key=key, fix=fix)
        elif (origin := f"group {normal}") not in self.taken:
            for item, place in self._list_group(found[1], key=key, inside=(*inside, normal)):
                self._read_item(item, key=place, origin=origin)
            self.taken.add(origin)

    def _list_group(self, value: Value, *, key: str, inside: tuple[str, ...]) -> Iterator[tuple[Text, str]]:
        """The requirements of a group; the groups that it includes are read on the way."""
        plain: list[Value] = []
        for item in value.items if isinstance(value, Listing) else ():
            named = item.get("include-group") if isinstance(item, Table) and len(item.entries) == 1 else None
            if isinstance(named, Text):
                self._read_group(named.raw, asked="", line=item.line, inside=inside)
            else:
                plain.append(item)
        rest = Listing(items=tuple(plain), line=value.line) if isinstance(value, Listing) else value
        yield from self.list_texts(rest, key=key, what="requirements and groups", fix=ITEM)

    def _report_unknown(self, kind: str, name: str, known: Parts, *, asked: str, line: int | None) -> None:
        message = f"the project has no {kind} '{sanitize(name)}'"
        fix = suggest_name(name, known=[found.raw for found, _ in known.values()], noun=f"its {kind}s")
        other = self.groups if kind == "extra" else self.extras
        if canonicalize_name(name) in other and asked:
            fix = f"it is {'a group: --group' if kind == 'extra' else 'an extra: --extra'} {sanitize(name)}"
        if asked:
            at = Location(file=self.file, key=asked)
            self.add_error(make_config_error(f"project-{kind}", message, at=at, fix=fix))
        else:
            self.add_fault(f"project-{kind}", message, line=line or 1, key="", fix=fix)

    def _add_project(self) -> None:
        """Add the project itself, as `pip install .` does."""
        at = self.locate(self.tree.get_line("project"), "project")
        try:
            self.reader.add_requirement(parse_location(".", at=at), at=at)
        except ConfigError as error:
            self.add_error(error)


def read_pyproject(path: Path, *, file: str, tree: Table, choice: InputChoice) -> Recipe:
    """Read the environment of a project; raises ConfigError with every fault."""
    return PyprojectReader(path, file=file, tree=tree, choice=choice).read_recipe()
