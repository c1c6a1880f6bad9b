"""What the readers of pyproject.toml and pixi.toml share: values with their places, requirements, the recipe."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path

from packaging.markers import Marker
from packaging.specifiers import SpecifierSet

from builder.model.finding import ConfigError, Finding, Location, find_nearest, suggest_name
from builder.model.recipe import CondaSpec, Container, InputChoice, PipRequirement, Recipe
from builder.model.text import make_config_error, sanitize
from builder.parse.container import read_container
from builder.parse.copied_files import check_copied_files, check_own_folders
from builder.parse.decoder import Decoder
from builder.parse.environment_yml import list_lines, name_from, sort_findings
from builder.parse.fix_words import translate_fix
from builder.parse.matchspec import join_conda, parse_conda_spec
from builder.parse.python_versions import check_python
from builder.parse.requirement import join_requirements
from builder.parse.requirements_txt import RequirementsReader, parse_line
from builder.parse.written_secrets import check_addresses, check_secrets
from builder.parse.yaml import Listing, Table, Text, Value
from builder.sif.bounded import hash_text

EMPTY = Table(entries=(), line=1)
PROCESSORS = ("x86_64", "aarch64")
LINUX = {"os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "extra": ""}
NEAR = 0.8  # of two names, one of which is misspelt
RANGE_LIMIT = 400  # characters of a range of versions
NO_RANGE = "not a range of versions"
SECTION = "tool.recipe"  # what `container:` is in TOML


def decide_marker(marker: str, *, arch: str, at: Location) -> bool | None:
    """Whether a marker holds on Linux with a processor; None where the Python or the kernel decides.

    Raises ConfigError for what is no marker.
    """
    if (
        re.search("platform_(?:release|version)", marker)
        or "python" in marker.replace("platform_python_implementation", "")
        or "implementation" in marker
    ):
        return None
    try:
        return Marker(marker).evaluate({**LINUX, "platform_machine": arch})
    except (ValueError, RecursionError):
        fix = "write it as in \"sys_platform == 'linux'\""
        raise make_config_error(
            "pip-marker", f"the marker '{sanitize(marker)}' is not understood", at=at, fix=fix
        ) from None


class ProjectReader:
    """A TOML file with an environment; all faults are collected in `decoder`, and raised together."""

    def __init__(self, path: Path, *, file: str, tree: Table, choice: InputChoice) -> None:
        self.path, self.file, self.tree, self.choice = path, file, tree, choice
        self.decoder = Decoder(file=file)
        self.reader = RequirementsReader(file=file, folder=path.parent)
        self.warnings: list[Finding] = []

    def add_fault(self, code: str, message: str, *, line: int, key: str, fix: str) -> None:
        self.decoder.add_fault(code, message, line=line, key=key, fix=fix)

    def add_warning(self, code: str, message: str, *, line: int, key: str, fix: str) -> None:
        at = Location(file=self.file, line=line, key=key)
        self.warnings.append(Finding(code=code, message=message, at=at, fix=fix, level="warning"))

    def add_error(self, error: ConfigError) -> None:
        self.decoder.findings += [translate_fix(finding, form="toml") for finding in error.findings]

    def check_keys(self, table: Table, *, known: Sequence[str], key: str, strict: bool = False) -> None:
        """Report unknown keys: a misspelt one as a fault, another one, too, where it is `strict`, else as a warning."""
        for name, _ in table.entries:
            if name.raw in known:
                continue
            word = sanitize(name.raw)
            place, fix = f"{key}.{word}".lstrip("."), suggest_name(name.raw, known=known)
            if strict or find_nearest(name.raw, known=known, cutoff=NEAR):
                self.add_fault("unknown-key", f"unknown key '{word}'", line=name.line, key=place, fix=fix)
            else:
                fix = "remove it, or check its name"
                self.add_warning(
                    "unknown-key", f"unknown key '{word}': it is ignored", line=name.line, key=place, fix=fix
                )

    def locate(self, line: int, key: str) -> Location:
        return Location(file=self.file, line=line, key=key)

    def find_table(self, tree: Table, *names: str, key: str = "") -> Table:
        """The table below a table, an empty one where it is missing; another value is a fault."""
        for name in names:
            key = f"{key}.{name}".lstrip(".")
            found = tree.get(name)
            if found is not None and not isinstance(found, Table):
                self.decoder.add_wrong_type(found, "a table of keys", key=key, fix=f"write it as a table: [{key}]")
            tree = found if isinstance(found, Table) else EMPTY
        return tree

    def list_texts(
        self,
        value: Value | None,
        *,
        key: str,
        what: str,
        fix: str = 'write a list of texts, as in ["numpy>=2", "torch"]',
    ) -> list[tuple[Text, str]]:
        """The texts of a list with their keys; what is no text is a fault."""
        if value is None:
            return []
        if not isinstance(value, Listing):
            self.decoder.add_wrong_type(value, f"a list of {what}", key=key, fix=fix)
            return []
        found = []
        for index, item in enumerate(value.items):
            if isinstance(item, Text) and item.kind == "text":
                found.append((item, f"{key}[{index}]"))
            else:
                self.decoder.add_wrong_type(item, f"one of the {what}", key=f"{key}[{index}]", fix=fix)
        return found

    def get_text(self, table: Table, name: str, *, key: str) -> str:
        """The text of a key, "" where it is missing or no text."""
        value = table.get(name)
        if value is None:
            return ""
        if not isinstance(value, Text) or value.kind != "text":
            self.decoder.add_wrong_type(value, "a text", key=f"{key}.{name}".lstrip("."), fix="put it in quotes")
            return ""
        return value.raw

    def read_requirement(self, text: str, *, at: Location) -> PipRequirement:
        """Read a requirement of PEP 508; raises ConfigError, also for an option and for a bare path."""
        found = parse_line(text, at=at) if not text.startswith("-") else ()
        if isinstance(found, PipRequirement) and found.name:
            return found
        message = f"'{sanitize(text)}' is not a requirement of a project, which has a name"
        fix = "write NAME, NAME>=VERSION or 'NAME @ https://...'; a path belongs into [tool.uv.sources]"
        raise make_config_error("pip-form", message, at=at, fix=fix)

    def read_python(self, value: Value | None, *, key: str) -> CondaSpec | None:
        """The Python of `requires-python` (PEP 440) as a conda package."""
        if value is None:
            return None
        at = self.locate(value.line, key)
        if not isinstance(value, Text) or value.kind != "text":
            self.decoder.add_wrong_type(
                value, "the versions of Python", key=key, fix='write requires-python = ">=3.10"'
            )
            return None
        spec = _parse_range(value.raw, at=at)
        if spec is None:
            long = len(value.raw) > RANGE_LIMIT
            message = f"'{sanitize(value.raw)}' is {f'longer than {RANGE_LIMIT} characters' if long else NO_RANGE}"
            self.add_fault("project-python", message, line=value.line, key=key, fix="write it as in '>=3.10,<3.14'")
            return None
        try:
            check_python(spec, at=at)
        except ConfigError as error:
            self.add_error(error)
            return None
        return spec

    @cached_property
    def container(self) -> Container:
        """What `[tool.recipe]` says, as `container:` in an environment.yml."""
        value = self.find_table(self.tree, "tool").get("recipe")
        if value is None:
            return Container()
        own = Decoder(file=self.file)
        name = Text(raw="container", line=value.line)
        check_secrets(Table(entries=((name, value),), line=value.line), decoder=own)
        container = read_container(value, decoder=own, folder=self.path.parent)
        self.decoder.findings += map(_rename, own.findings)
        return container

    def make_recipe(
        self,
        *,
        name: str,
        conda: Sequence[tuple[CondaSpec, Location]],
        channels: tuple[str, ...] = (),
        variables: Mapping[str, str] | None = None,
    ) -> Recipe:
        """Make the recipe; raises ConfigError with all faults of the file."""
        specs, twice = join_conda([spec for spec, _ in conda], ats=[at for _, at in conda])
        if twice is not None:
            self.add_error(twice)
        pip, faults = join_requirements(self.reader.requirements, file=self.file, key="")
        self.decoder.findings += [*self.reader.findings, *faults]
        container = self.container
        if self.decoder.findings:
            found = dict.fromkeys(translate_fix(finding, form="toml") for finding in self.decoder.findings)
            raise ConfigError(*sort_findings(found, file=self.file))
        options = self.reader.make_options()
        recipe = Recipe(
            name=name,
            file=self.file,
            digest="",
            folder=str(self.path.parent),
            kind="project",
            channels=channels,
            conda=specs,
            pip=pip,
            pip_options=options,
            variables=variables or {},
            container=container,
            lines=dict(self._list_lines()),
            warnings=(
                *self.warnings,
                *check_addresses(pip, options, file=self.file),
                *check_own_folders(pip, folder=self.path.parent, file=self.file),
                *check_copied_files(container.files, folder=self.path.parent, file=self.file),
            ),
        )
        return replace(recipe, digest=_hash_content(recipe))

    def _list_lines(self) -> Iterator[tuple[str, int]]:
        """The lines of `[tool.recipe]` under the names that checks look for."""
        value = self.find_table(self.tree, "tool").get("recipe")
        if value is not None:
            yield "container", value.line
            yield from list_lines(value, "container")

    def choose_name(self, value: str) -> str:
        """The name of the recipe: the project's, else that of its folder."""
        return name_from(value or self.path.resolve().parent.name)


def _parse_range(text: str, *, at: Location) -> CondaSpec | None:
    """A range of PEP 440 as conda's, None for another text, or one that is too long."""
    if len(text) > RANGE_LIMIT:
        return None
    try:
        parts = [str(part) for part in SpecifierSet(text)]
    except ValueError:
        return None
    order = [part.strip() for part in text.split(",") if part.strip()]
    plain = [re.sub(r"\s", "", part) for part in order] if len(order) == len(parts) else parts
    words = [re.sub(r"^={2,3}(.*)\.\*$", r"=\1", part) for part in plain]
    try:
        return parse_conda_spec(f"python{','.join(words)}", at=at)
    except ConfigError:
        return None


def _hash_content(recipe: Recipe) -> str:
    """The digest of what is installed: another setting of a linter, or version of the project, changes no image."""
    content = {
        "name": recipe.name,
        "channels": recipe.channels,
        "conda": [spec.text for spec in recipe.conda],
        "pip": [line.text for line in recipe.pip],
        "options": asdict(recipe.pip_options),
        "variables": dict(recipe.variables),
        "container": asdict(recipe.container),
    }
    return hash_text(json.dumps(content, sort_keys=True))


def _rename(finding: Finding) -> Finding:
    """A finding of `container:` in the words of TOML."""
    at = finding.at and replace(finding.at, key=re.sub(r"^container\b", SECTION, finding.at.key))
    found = translate_fix(finding, form="toml")
    return replace(found, at=at, fix=found.fix.replace("container.", f"{SECTION}."))
