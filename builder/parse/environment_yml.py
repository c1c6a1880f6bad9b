"""A conda environment file to the normal form of a recipe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from builder.model.finding import ConfigError, Finding, Location, find_nearest, find_typo, make_edit, suggest_name
from builder.model.recipe import CondaSpec, Container, PipRequirement, Recipe
from builder.model.text import make_config_error, sanitize
from builder.parse.container import check_variables, read_container, stringify
from builder.parse.copied_files import check_copied_files, check_own_folders
from builder.parse.decoder import Decoder
from builder.parse.matchspec import EXTRAS, check_channel, join_conda, parse_conda_spec
from builder.parse.other_formats import refuse_other_tables
from builder.parse.python_versions import check_python
from builder.parse.requirement import check_hashes, join_requirements
from builder.parse.requirements_txt import RequirementsReader
from builder.parse.written_secrets import check_addresses, check_secrets
from builder.parse.yaml import Listing, Table, Text, Value, describe, parse_yaml, read_text
from builder.sif.bounded import hash_text

SECTION = ("gpu", "base", "system", "files", "env", "run", "labels", "smoke", "python")  # keys of `container`
KEYS = ("category", "channels", "container", "dependencies", "name", "platforms", "prefix", "variables")
OF_OTHER_TOOLS = ("platform",)  # conda-lock and others have it; not a misspelled `platforms`
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
NAME_LIMIT = 100
NO_PACKAGE = "write packages below 'dependencies:', e.g. '- python=3.12'"


def hash_texts(texts: list[str]) -> str:
    """Hash the texts, joined by NUL, which none of them contains."""
    return hash_text("\0".join(texts))


def name_from(stem: str) -> str:
    """Make a name for a recipe without one, from its file or folder."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", stem).strip("-.+")[:NAME_LIMIT] or "recipe"


def sort_findings(findings: Iterable[Finding], *, file: str) -> tuple[Finding, ...]:
    """Sort findings by line, those of the recipe before those of the files it names."""

    def order(finding: Finding) -> tuple[bool, int]:
        at = finding.at or Location()
        return at.file != file, at.line or 0 if at.file == file else 0

    return tuple(sorted(findings, key=order))


class EnvironmentReader:
    """A conda environment file; all faults are collected in `decoder`, and raised together."""

    def __init__(self, path: Path, *, file: str, text: str | None = None) -> None:
        self.path = path
        self.file = file
        self.text = text
        self.decoder = Decoder(file=file)
        self.reader = RequirementsReader(file=file, folder=path.parent)
        self.warnings: list[Finding] = []

    def read_recipe(self) -> Recipe:
        """Read the file; raises ConfigError with all its faults."""
        text = read_text(self.path, what="recipe", name=self.file) if self.text is None else self.text
        if self.path.suffix.lower() != ".json" and not text.lstrip().startswith("{"):
            return self._read_text(text)
        from builder.parse.fix_words import translate_fix  # few recipes are JSON
        from builder.parse.json_text import to_plain_yaml

        try:
            return self._read_text(to_plain_yaml(text, file=self.file, strict=self.path.suffix.lower() == ".json"))
        except ConfigError as error:
            raise ConfigError(*(translate_fix(finding, form="json") for finding in error.findings)) from None

    def _read_text(self, text: str) -> Recipe:
        tree = self._parse_tree(text)
        self._check_keys(tree)
        check_secrets(tree, decoder=self.decoder)
        name = self._name(tree.get("name"))
        channels = self._read_channels(tree.get("channels"))
        conda, pip = self._read_dependencies(tree)
        variables = self._read_variables(tree.get("variables"))
        section, prefix = tree.get("container"), tree.get("prefix")
        container = read_container(section, decoder=self.decoder, folder=self.path.parent) if section else Container()
        if not conda and not pip and container == Container() and not self.decoder.findings:
            at = Location(file=self.file, line=tree.get_line("dependencies"), key="dependencies")
            self._add_fault(make_config_error("recipe-empty", "the recipe asks for no package", at=at, fix=NO_PACKAGE))
        if self.decoder.findings:
            raise ConfigError(*sort_findings(self.decoder.findings, file=self.file))
        return Recipe(
            name=name,
            file=self.file,
            digest=hash_texts([text, *self.reader.texts]),
            folder=str(self.path.parent),
            kind="conda",
            channels=channels,
            conda=conda,
            pip=pip,
            pip_options=self.reader.make_options(),
            variables=variables,
            prefix=prefix.raw if isinstance(prefix, Text) else "",
            container=container,
            lines=dict(list_lines(tree, "")),
            warnings=(
                *self.warnings,
                *check_addresses(pip, self.reader.make_options(), file=self.file),
                *check_own_folders(pip, folder=self.path.parent, file=self.file),
                *check_copied_files(container.files, folder=self.path.parent, file=self.file),
            ),
        )

    def _add_fault(self, error: ConfigError) -> None:
        self.decoder.findings.extend(error.findings)

    def _parse_tree(self, text: str) -> Table:
        tree = parse_yaml(text, file=self.file, faults=self.decoder.findings)
        if tree is None or (isinstance(tree, Text) and tree.kind == "null"):
            message = "the recipe is empty"
            raise make_config_error("recipe-empty", message, at=Location(file=self.file), fix=NO_PACKAGE)
        if not isinstance(tree, Table):
            message = f"the recipe is {describe(tree)}, not an environment file"
            fix = "begin with 'dependencies:' and write the packages below it; a requirements file ends in .txt"
            raise make_config_error("recipe-shape", message, at=Location(file=self.file, line=tree.line), fix=fix)
        refuse_other_tables(tree, file=self.file)
        return tree

    def _check_keys(self, tree: Table) -> None:
        for name, _ in tree.entries:
            if name.raw in KEYS:
                continue
            fix = suggest_name(name.raw, known=KEYS)
            edit: tuple[str, str] | None = (name.raw, find_typo(name.raw, known=KEYS))
            if name.raw == "pip":
                edit = None
                fix = "write it as an item below dependencies: '- pip:', and the list below that"
            elif name.raw in SECTION:
                message, fix = f"unknown key '{name.raw}'", f"write it below 'container:'; {fix}"
                at = Location(file=self.file, line=name.line, key=name.raw)
                exact = None if name.raw == "python" else make_edit(at, name.raw, below="container")
                self._add_fault(make_config_error("unknown-key", message, at=at, fix=fix, edit=exact))
                continue
            key = sanitize(name.raw)
            strange = name.raw != "pip" and not find_nearest(name.raw, known=(*KEYS, *SECTION))
            if name.raw in OF_OTHER_TOOLS or (NAME.fullmatch(name.raw) and strange):
                at = Location(file=self.file, line=name.line, key=key)
                message, fix = f"unknown key '{key}': it is ignored, as by conda", "remove it, or check its name"
                fault = make_config_error("unknown-key", message, at=at, fix=f"{fix}: {suggest_name('', known=KEYS)}")
                self.warnings += [replace(finding, level="warning") for finding in fault.findings]
                continue
            self.decoder.add_fault("unknown-key", f"unknown key '{key}'", line=name.line, key=key, fix=fix, edit=edit)

    def _name(self, value: Value | None) -> str:
        if value is None or (isinstance(value, Text) and value.kind == "null"):
            return name_from(self.path.stem)
        if not isinstance(value, Text):
            self.decoder.add_wrong_type(value, "a name", key="name", fix="write one word")
        elif not NAME.fullmatch(value.raw) or len(value.raw) > NAME_LIMIT:
            message = f"'{sanitize(value.raw)}' cannot be the name of an image"
            fix = "use letters, digits and _.+- only, at most 100"
            self.decoder.add_fault("recipe-name", message, line=value.line, key="name", fix=fix)
        else:
            return value.raw
        return ""

    def _read_channels(self, value: Value | None) -> tuple[str, ...]:
        if value is None or (isinstance(value, Text) and value.kind == "null"):
            return ()
        if isinstance(value, Table):
            self.decoder.add_wrong_type(value, "a list of channels", key="channels", fix="write '- conda-forge' lines")
            return ()
        found: list[str] = []
        single = isinstance(value, Text)
        for index, item in enumerate(value.items if isinstance(value, Listing) else (value,)):
            key = "channels" if single else f"channels[{index}]"
            if not isinstance(item, Text) or item.kind in ("null", "bool"):
                fix = "write e.g. '- conda-forge'"
                self.decoder.add_wrong_type(item, "the name of a channel", key=key, fix=fix)
                continue
            try:
                check_channel(item.raw, at=Location(file=self.file, line=item.line, key=key))
            except ConfigError as error:
                self._add_fault(error)
            found.append(item.raw)
        return tuple(dict.fromkeys(found))

    def _read_dependencies(self, tree: Table) -> tuple[tuple[CondaSpec, ...], tuple[PipRequirement, ...]]:
        value = tree.get("dependencies")
        if value is None or (isinstance(value, Text) and value.kind == "null"):
            return (), ()
        if not isinstance(value, Listing):
            fix = "write one package a line, each after '- '"
            self.decoder.add_wrong_type(value, "a list of packages", key="dependencies", fix=fix)
            return (), ()
        specs: list[CondaSpec] = []
        ats: list[Location] = []
        pip_line, flat = 0, False
        for index, item in enumerate(value.items):
            key = f"dependencies[{index}]"
            at = Location(file=self.file, line=item.line, key=key)
            try:
                if isinstance(item, Text):
                    specs.append(self._read_conda(item, at=at))
                    ats.append(at)
                elif isinstance(item, Table):
                    last = index == len(value.items) - 1
                    pip_line = self._read_pip(item, at=at, first=pip_line, last=last)
                    flat = isinstance(below := item.get("pip"), Text) and below.kind == "null"
                else:
                    fix = "write every package directly below 'dependencies:'"
                    raise make_config_error("wrong-type", "there is a list inside the list of packages", at=at, fix=fix)
            except ConfigError as error:
                deeper = flat and isinstance(item, Text) and " - " in item.raw
                self._add_fault(_add_indent_fix(error) if deeper else error)
        conda, twice = join_conda(specs, ats=ats)
        if twice is not None:
            self._add_fault(twice)
        pip, findings = join_requirements(self.reader.requirements, file=self.file, key="dependencies.pip")
        self.decoder.findings += [*self.reader.findings, *findings]
        asked = self.reader.make_options().require_hashes
        self.decoder.findings += check_hashes(pip, asked=asked, file=self.file)
        return conda, pip

    def _read_conda(self, item: Text, *, at: Location) -> CondaSpec:
        if item.kind == "null":
            fix = "remove the '-'"
            raise make_config_error("conda-empty", "a dependency is empty", at=at, fix=fix, edit=make_edit(at, "-"))
        if item.kind != "text":
            message = f"expected a package, found {describe(item)}"
            example = f"- python={item.raw}" if item.kind == "number" else "- python=3.12"
            raise make_config_error("wrong-type", message, at=at, fix=f"name the package too, e.g. '{example}'")
        spec = parse_conda_spec(item.raw, at=at)
        check_python(spec, at=at)
        if extras := EXTRAS.search(item.raw.strip()):
            message = (
                f"'{sanitize(extras[0])}' in '{sanitize(item.raw.strip())}' is ignored, as by conda: extras are pip's"
            )
            fix = "remove it, or move the line below '- pip:'"
            told = make_config_error("conda-bracket", message, at=at, fix=fix).findings
            self.warnings += [replace(finding, level="warning") for finding in told]
        return spec

    def _read_pip(self, item: Table, *, at: Location, first: int, last: bool) -> int:
        """Read `- pip: [...]`, return its line; `last` means that no later item could belong to it."""
        for name, value in item.entries:
            if name.raw != "pip":
                shown_name = sanitize(name.raw)
                if isinstance(value, Text) and value.kind != "null":
                    operator = "" if value.raw.startswith(tuple("=<>!~")) else "="
                    right = f"{shown_name}{operator}{sanitize(value.raw)}"
                    fix = f"write '- {right}'"
                    exact = Location(file=at.file, line=name.line) if value.raw[:1] in "0123456789=<>!~" else None
                    edit = make_edit(exact, f"{name.raw}: {value.raw}", right)
                    message = f"'{shown_name}: {sanitize(value.raw)}' has a colon where conda wants '='"
                else:
                    message, fix = f"'{shown_name}:' is not understood here", "known here: 'pip:' with a list below it"
                    edit = None
                place = Location(file=at.file, line=name.line, key=at.key)
                self._add_fault(make_config_error("conda-colon", message, at=place, fix=fix, edit=edit))
                continue
            if first:
                message = f"a second 'pip:' list (the first is in line {first}), and conda would use only one"
                self._add_fault(make_config_error("pip-second", message, at=at, fix="join the two"))
            first = name.line
            if not last and isinstance(value, Text) and value.kind == "null":
                message = "the 'pip:' list is empty, and the items after it are read as conda packages"
                edit = make_edit(Location(file=at.file, line=name.line), "pip", below="items")
                fix = "indent the items for pip by two more spaces"
                self._add_fault(make_config_error("pip-flat", message, at=at, fix=fix, edit=edit))
            self._read_pip_list(value)
        return first

    def _read_pip_list(self, value: Value) -> None:
        if isinstance(value, Text) and value.kind == "null":
            return
        if not isinstance(value, Listing):
            fix = "write one package a line below 'pip:', each after '- '"
            self.decoder.add_wrong_type(value, "a list of packages for pip", key="dependencies.pip", fix=fix)
            return
        for index, item in enumerate(value.items):
            key = f"dependencies.pip[{index}]"
            if not isinstance(item, Text) or item.kind != "text":
                fix = "write NAME==VERSION, e.g. '- numpy==1.26.4'"
                self.decoder.add_wrong_type(item, "a package for pip", key=key, fix=fix)
                continue
            at = Location(file=self.file, line=item.line, key=key)
            self.reader.add_text(item.raw, at=at, base=self.path.parent)

    def _read_variables(self, value: Value | None) -> Mapping[str, str]:
        if value is None:
            return {}
        value = stringify(value)
        check_variables(value, decoder=self.decoder, key="variables")
        found: Mapping[str, str] = self.decoder.decode(value, Mapping[str, str], key="variables")
        return found


def _add_indent_fix(error: ConfigError) -> ConfigError:
    """Give the faults of items after an empty `- pip:` the fix that keeps them packages of pip."""
    fix = "indent this line and the one before it below '- pip:', in one column"
    return ConfigError(*(replace(finding, fix=fix, edit=None) for finding in error.findings))


def list_lines(value: Value, path: str) -> Iterator[tuple[str, int]]:
    """Return the line of every key path; the items of pip's list are `dependencies.pip[N]`, wherever the list is."""
    if isinstance(value, Table):
        for name, item in value.entries:
            below = (
                "dependencies.pip" if re.fullmatch(r"dependencies\[\d+\]", path) else f"{path}.{name.raw}".lstrip(".")
            )
            yield below, name.line
            yield from list_lines(item, below)
    elif isinstance(value, Listing):
        for index, item in enumerate(value.items):
            yield f"{path}[{index}]", item.line
            yield from list_lines(item, f"{path}[{index}]")
