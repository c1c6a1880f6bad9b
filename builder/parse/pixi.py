"""A pixi.toml, or the `[tool.pixi]` of a pyproject.toml, to a recipe: one environment of a workspace.

Source: pixi's documentation, "Pixi manifest" and "Multi environment" (read 2026-11-23).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from builder.model.finding import ConfigError, Finding, Location, suggest_name
from builder.model.recipe import CondaSpec, InputChoice, Recipe
from builder.model.text import make_config_error, sanitize
from builder.parse.container import check_variables, stringify
from builder.parse.environment_yml import sort_findings
from builder.parse.matchspec import NAME, check_channel
from builder.parse.pixi_packages import read_conda, read_pypi
from builder.parse.project import EMPTY, PROCESSORS, ProjectReader
from builder.parse.python_versions import check_python
from builder.parse.yaml import Listing, Table, Text, Value
from builder.sif.bounded import hash_text

PLATFORMS = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}
OTHERS = (
    "osx",
    "osx-64",
    "osx-arm64",
    "win",
    "win-64",
    "win-arm64",
    "linux-ppc64le",
    "linux-armv7l",
    "emscripten-wasm32",
)
GROUPS_LIMIT = 20  # groups that include groups
CONDA = ("dependencies", "host-dependencies", "build-dependencies")
FEATURE_KEYS = (
    *CONDA, "activation", "channel-priority", "channels", "platforms", "pypi-dependencies", "pypi-options",
    "solve-strategy", "system-requirements", "target", "tasks",
)  # fmt: skip
ROOT_KEYS = ("environments", "feature", "package", "project", "tool", "workspace")
REFUSED = {
    "dependency-overrides": "write the version that you want into the dependencies",
}
IGNORED = {
    "no-build-isolation": 'below [tool.recipe]: run = ["python -m pip install --no-build-isolation NAME"]',
}


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A part of an environment; `key` is the path of its table, "" for the top of the file."""

    name: str
    table: Table
    key: str

    def join(self, name: str) -> str:
        return f"{self.key}.{name}".lstrip(".")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A key with its value, and its path."""

    name: Text
    value: Value
    key: str


class PixiReader(ProjectReader):
    """One environment of a workspace for one processor."""

    def __init__(self, path: Path, *, file: str, tree: Table, choice: InputChoice, arch: str) -> None:
        super().__init__(path, file=file, tree=tree, choice=choice)
        inner = self.find_table(tree, "tool", "pixi")
        self.own = inner is EMPTY  # a pixi.toml
        self.root, self.key = (tree, "") if self.own else (inner, "tool.pixi")
        self.project = EMPTY if self.own else self.find_table(tree, "project")
        self.selectors = ("unix", "linux", PLATFORMS[arch])
        old = self.root.get("workspace") is None
        self.workspace = self.find_table(self.root, "project" if old else "workspace", key=self.key)
        self.workspace_key = f"{self.key}.{'project' if old else 'workspace'}".lstrip(".")

    def read_recipe(self) -> Recipe:
        """Read the environment; raises ConfigError with all faults of the file."""
        features = self._list_features()
        for feature in features:
            known = (*FEATURE_KEYS, *(ROOT_KEYS if feature.table is self.root else ()))
            self.check_keys(feature.table, known=known, key=feature.key)
        conda: list[tuple[CondaSpec, Location]] = []
        for feature in features:
            conda += self._read_conda(feature)
            self._read_pypi(feature)
            self._read_options(feature)
            self._report_system(feature)
        python = self.read_python(self.project.get("requires-python"), key="project.requires-python")
        if python and all(spec.name != "python" for spec, _ in conda):
            conda.insert(0, (python, self.locate(python.line or 1, "project.requires-python")))
        variables = self._read_variables(features)
        conda = _join_features(conda)
        channels = tuple(self._read_channels(features))
        if not (conda or self.reader.requirements or self.decoder.findings or self.reader.findings):
            self._report_empty()
        name = self.get_text(self.workspace, "name", key=self.workspace_key)
        name = self.choose_name(name or self.get_text(self.project, "name", key="project"))
        if self.choice.environment not in ("", "default"):
            name = self.choose_name(f"{name}-{self.choice.environment}")
        return self.make_recipe(name=name, conda=conda, channels=channels, variables=variables)

    def _list_features(self) -> list[Feature]:
        """The features of the environment, the default one last."""
        default = Feature(name="default", table=self.root, key=self.key)
        environments = self.find_table(self.root, "environments", key=self.key)
        asked = self.choice.environment or "default"
        value = environments.get(asked)
        if value is None:
            if asked != "default":
                self._report_unknown(asked, environments)
            return [default]
        key = f"{self.key}.environments.{sanitize(asked)}".lstrip(".")
        names, alone = value, False
        if isinstance(value, Table):
            names = value.get("features") or Listing(items=(), line=value.line)
            flag = value.get("no-default-feature")
            alone = isinstance(flag, Text) and flag.raw == "true"
        found = [
            self._find_feature(item, key=place) for item, place in self.list_texts(names, key=key, what="features")
        ]
        return [*(feature for feature in found if feature is not None), *([] if alone else [default])]

    def _report_unknown(self, asked: str, environments: Table) -> None:
        known = sorted({"default", *(name.raw for name, _ in environments.entries)})
        message = f"the workspace has no environment '{sanitize(asked)}'"
        fix = suggest_name(asked, known=known, noun="its environments")
        self.add_error(
            make_config_error("pixi-environment", message, at=Location(file=self.file, key="--environment"), fix=fix)
        )

    def _find_feature(self, item: Text, *, key: str) -> Feature | None:
        features = self.find_table(self.root, "feature", key=self.key)
        value = features.get(item.raw)
        place = f"{self.key}.feature.{sanitize(item.raw)}".lstrip(".")
        if isinstance(value, Table):
            return Feature(name=item.raw, table=value, key=place)
        if self._list_parts(item.raw):  # an extra or a group of the pyproject.toml is a feature
            return Feature(name=item.raw, table=EMPTY, key=place)
        message = f"there is no feature '{sanitize(item.raw)}'"
        fix = suggest_name(item.raw, known=[name.raw for name, _ in features.entries], noun="features")
        self.add_fault("pixi-feature", message, line=item.line, key=key, fix=fix)
        return None

    def _list_parts(self, name: str) -> list[tuple[Value, str]]:
        """The lists of requirements that a feature has in the other tables of a pyproject.toml."""
        if name == "default":
            value = self.project.get("dependencies")
            return [(value, "project.dependencies")] if value is not None else []
        extras = self.find_table(self.project, "optional-dependencies", key="project")
        groups = EMPTY if self.own else self.find_table(self.tree, "dependency-groups")
        parts = ((extras, "project.optional-dependencies"), (groups, "dependency-groups"))
        return [
            (value, f"{key}.{sanitize(found.raw)}")
            for table, key in parts
            for found, value in table.entries
            if canonicalize_name(found.raw) == canonicalize_name(name)
        ]

    def _list_tables(self, feature: Feature) -> Iterator[tuple[Table, str]]:
        """The tables of a feature that are for this platform, the one for most platforms first."""
        yield feature.table, feature.key
        target = self.find_table(feature.table, "target", key=feature.key)
        known = ("unix", "linux", *PLATFORMS.values(), *OTHERS)
        for name, _ in target.entries:
            if name.raw not in known:
                message = f"'{sanitize(name.raw)}' is no platform"
                fix = suggest_name(name.raw, known=known, noun="platforms")
                self.add_fault("pixi-target", message, line=name.line, key=f"{feature.join('target')}", fix=fix)
        for selector in self.selectors:
            if target.get(selector) is not None:
                key = f"{feature.join('target')}.{selector}"
                yield self.find_table(target, selector, key=feature.join("target")), key

    def _collect(self, feature: Feature, *names: str) -> list[Entry]:
        """The entries of tables; one for fewer platforms replaces another of its name."""
        found: dict[str, Entry] = {}
        for table, key in self._list_tables(feature):
            for name in names:
                place = f"{key}.{name}".lstrip(".")
                for word, value in self.find_table(table, name, key=key).entries:
                    entry = Entry(name=word, value=value, key=f"{place}.{sanitize(word.raw)}")
                    found[f"{canonicalize_name(word.raw)}"] = entry
        return list(found.values())

    def _read_conda(self, feature: Feature) -> Iterator[tuple[CondaSpec, Location]]:
        for entry in self._collect(feature, *CONDA):
            at = self.locate(entry.name.line, entry.key)
            try:
                if not NAME.fullmatch(entry.name.raw):
                    message = f"'{sanitize(entry.name.raw)}' is not a package name"
                    fix = 'write it as in numpy = ">=2"'
                    raise make_config_error("conda-name", message, at=at, fix=fix)
                spec = read_conda(self, entry.name.raw, entry.value, key=entry.key, at=at)
                check_python(spec, at=at)
                yield spec, at
            except ConfigError as error:
                self.add_error(error)

    def _read_pypi(self, feature: Feature) -> None:
        for value, key in self._list_parts(feature.name):
            lists = (
                self._flatten_group(value, key=key, inside=(canonicalize_name(feature.name),))
                if key.startswith("dependency-groups")
                else value
            )
            for item, place in self.list_texts(lists, key=key, what="requirements"):
                at = self.locate(item.line, place)
                try:
                    self.reader.add_requirement(self.read_requirement(item.raw, at=at), at=at)
                except ConfigError as error:
                    self.add_error(error)
        for entry in self._collect(feature, "pypi-dependencies"):
            at = self.locate(entry.name.line, entry.key)
            try:
                self.reader.add_requirement(read_pypi(self, entry.name.raw, entry.value, key=entry.key, at=at), at=at)
            except ConfigError as error:
                self.add_error(error)

    def _flatten_group(self, value: Value, *, key: str, inside: tuple[str, ...] = ()) -> Value:
        """The requirements of a group and of those that it includes, as one list."""
        groups = self.find_table(self.tree, "dependency-groups")
        known = {canonicalize_name(name.raw): item for name, item in groups.entries}
        found: list[Value] = []
        for item in value.items if isinstance(value, Listing) else (value,):
            named = item.get("include-group") if isinstance(item, Table) and len(item.entries) == 1 else None
            if not isinstance(named, Text):
                found.append(item)
                continue
            normal = canonicalize_name(named.raw)
            if normal not in known or normal in inside or len(inside) >= GROUPS_LIMIT:
                why = "which includes it" if normal in inside else "which is no group"
                message = f"the group includes '{sanitize(named.raw)}', {why}"
                self.add_fault("project-group", message, line=item.line, key=key, fix="remove that item, or correct it")
                continue
            below = self._flatten_group(known[normal], key=key, inside=(*inside, normal))
            found += below.items if isinstance(below, Listing) else (below,)
        return Listing(items=tuple(found), line=value.line)

    def _read_channels(self, features: list[Feature]) -> Iterator[str]:
        found: list[tuple[int, str]] = []
        tables = [(feature.table, feature.key) for feature in features if feature.table is not self.root]
        for table, key in [*tables, (self.workspace, self.workspace_key)]:
            value = table.get("channels")
            place = f"{key}.channels"
            if value is not None and not isinstance(value, Listing):
                self.decoder.add_wrong_type(value, "a list of channels", key=place, fix='write ["conda-forge"]')
                continue
            for index, item in enumerate(value.items if isinstance(value, Listing) else ()):
                name = item.get("channel") if isinstance(item, Table) else item
                level = item.get("priority") if isinstance(item, Table) else None
                if not isinstance(name, Text) or name.kind != "text":
                    fix = 'write ["conda-forge"]'
                    self.decoder.add_wrong_type(item, "the name of a channel", key=f"{place}[{index}]", fix=fix)
                    continue
                try:
                    check_channel(name.raw, at=self.locate(item.line, f"{place}[{index}]"))
                except ConfigError as error:
                    self.add_error(error)
                number = level.raw.lstrip("-") if isinstance(level, Text) else ""
                weight = int(level.raw) if isinstance(level, Text) and number.isdigit() and len(number) < 10 else 0
                found.append((weight, name.raw))
        names = [name for _, name in sorted(found, key=lambda one: -one[0])]
        yield from dict.fromkeys(names or ["conda-forge"])

    def _read_variables(self, features: list[Feature]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for feature in reversed(features):
            for table, key in self._list_tables(feature):
                activation = self.find_table(table, "activation", key=key)
                place = f"{key}.activation".lstrip(".")
                if (scripts := activation.get("scripts")) is not None:
                    message = "scripts of an activation are not run: a program is started in an image without one"
                    fix = "write what they set below 'activation.env'"
                    self.add_warning("pixi-activation", message, line=scripts.line, key=f"{place}.scripts", fix=fix)
                value = activation.get("env")
                if value is not None:
                    value = stringify(value)
                    check_variables(value, decoder=self.decoder, key=f"{place}.env")
                    found |= self.decoder.decode(value, Mapping[str, str], key=f"{place}.env")
        return found

    def _read_options(self, feature: Feature) -> None:
        key = feature.join("pypi-options")
        options = self.find_table(feature.table, "pypi-options", key=feature.key)
        for name, value in options.entries:
            place, items = f"{key}.{name.raw}", value.items if isinstance(value, Listing) else (value,)
            if name.raw in REFUSED:
                message = f"'{name.raw}' changes what packages require, and an installer in an image cannot do that"
                self.add_fault("pixi-setting", message, line=name.line, key=place, fix=REFUSED[name.raw])
            elif name.raw in IGNORED:
                message = f"'{name.raw}' is not used in the build of an image"
                self.add_warning("pixi-setting", message, line=name.line, key=place, fix=IGNORED[name.raw])
            elif name.raw in ("index-url", "extra-index-urls", "find-links", "no-binary", "no-build"):
                for item in items:
                    self._add_option(name.raw, item, key=place)
            elif name.raw == "prerelease-mode" and isinstance(value, Text) and value.raw == "allow":
                self._add_option("pre", Text(raw="", line=value.line), key=place)

    def _add_option(self, name: str, item: Value, *, key: str) -> None:
        if isinstance(item, Table):  # of find-links
            item = item.get("url") or item.get("path") or item
        if not isinstance(item, Text):
            self.decoder.add_wrong_type(item, "a text", key=key, fix="put it in quotes")
            return
        if item.kind == "bool" and item.raw != "true":
            return
        word = ":all:" if item.kind == "bool" else item.raw
        option = {"extra-index-urls": "extra-index-url", "no-build": "only-binary"}.get(name, name)
        try:
            self.reader.add_option(option, word, at=self.locate(item.line, key), base=self.path.parent)
        except ConfigError as error:
            self.add_error(error)

    def _report_system(self, feature: Feature) -> None:
        table = self.find_table(feature.table, "system-requirements", key=feature.key)
        names = [sanitize(name.raw) for name, _ in table.entries]
        if names:
            message = (
                f"the system requirements ({', '.join(names)}) are not used: the driver and the glibc are the site's"
            )
            at = self.locate(table.line, feature.join("system-requirements"))
            self.warnings.append(
                Finding(code="pixi-system", message=message, at=at, fix="no action needed", level="note")
            )

    def _report_empty(self) -> None:
        environments = self.find_table(self.root, "environments", key=self.key)
        others = [sanitize(name.raw) for name, _ in environments.entries if name.raw != self.choice.environment]
        fix = 'write packages below [dependencies], as in numpy = ">=2"'
        fix = f"choose one of these: {', '.join(f'--environment {name}' for name in others[:8])}" if others else fix
        name = self.choice.environment or "default"
        message = f"the environment '{sanitize(name)}' has no packages"
        line = self.root.get_line("dependencies")
        key = f"{self.key}.dependencies".lstrip(".")
        self.add_fault("recipe-empty", message, line=line, key=key, fix=fix)


def _join_features(conda: Sequence[tuple[CondaSpec, Location]]) -> list[tuple[CondaSpec, Location]]:
    """Join what features say of one package, as pixi does: all of it holds."""
    found: dict[str, tuple[CondaSpec, Location]] = {}
    for spec, at in conda:
        before, place = found.get(spec.name, (spec, at))
        plain = not any((one.build or one.url or one.channel or "|" in one.version) for one in (spec, before))
        if before is not spec and plain and spec.version and before.version and spec.version != before.version:
            version = f"{before.version},{spec.version}"
            found[spec.name] = (replace(before, version=version, text=f"{spec.name} {version}"), place)
        elif before is spec or before.text == spec.text or (plain and not spec.version):
            found[spec.name] = (before, place)
        elif plain:
            found[spec.name] = (spec, at)
        else:
            found[f"{spec.name} {len(found)}"] = (spec, at)  # a fault, which is found with all others
    return list(found.values())


def is_pixi(tree: Table) -> bool:
    """Whether a pyproject.toml is the manifest of a pixi workspace, too."""
    tool = tree.get("tool")
    pixi = tool.get("pixi") if isinstance(tool, Table) else None
    return isinstance(pixi, Table) and any(pixi.get(name) is not None for name in ("workspace", "project"))


def read_pixi(path: Path, *, file: str, tree: Table, choice: InputChoice) -> Recipe:
    """Read an environment of a workspace, for each processor; raises ConfigError with every fault."""
    found: dict[str, Recipe] = {}
    faults: list[Finding] = []
    for arch in PROCESSORS:
        try:
            found[arch] = PixiReader(path, file=file, tree=tree, choice=choice, arch=arch).read_recipe()
        except ConfigError as error:
            faults += error.findings
    if faults:
        raise ConfigError(*sort_findings(dict.fromkeys(faults), file=file))
    first, *others = found
    digest = hash_text(" ".join(dict.fromkeys(recipe.digest for recipe in found.values())))
    recipes = {arch: replace(recipe, digest=digest) for arch, recipe in found.items()}
    different = {arch: recipes[arch] for arch in others if recipes[arch] != recipes[first]}
    return replace(recipes[first], by_processor=different)
