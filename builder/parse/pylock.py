"""A pylock.toml (PEP 751) of another tool to the normal form of a recipe: each package with its version and hashes.

The torch family keeps its release alone: which build of it is installed is the site's choice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

from builder.model.finding import ConfigError, Location, suggest_name
from builder.model.recipe import CondaSpec, InputChoice, Recipe
from builder.model.text import make_config_error, sanitize
from builder.parse.lock_files import NAME, TORCH_FAMILY, VERSION
from builder.parse.project import PROCESSORS, ProjectReader, decide_marker
from builder.parse.requirement import parse_requirement
from builder.parse.requirements_txt import HASH
from builder.parse.toml import parse_toml
from builder.parse.yaml import Listing, Table, Text, Value

SIZE_LIMIT = 16 * 1024 * 1024  # bytes: a lock of uv lists every file of a package, 90 KB for torch and its own
NODES = 400_000  # values: each file has eight
VERSION_READ = "1.0"
AGAIN = "write the lock again with the tool that made it"
TORCH_HOST = "download.pytorch.org"
PART = re.compile(r"""(['"])(?P<name>[^'"]*)\1\s+(?P<no>not\s+)?in\s+(?P<kind>extras|dependency_groups)\b""")
HOLDS, FAILS = 'os_name == "posix"', 'os_name != "posix"'  # what a marker is on every site
ELSEWHERE = re.compile(
    r"-[^-]*(?:win32|win_amd64|win_arm64|macosx|ios|android|musllinux|pyodide|emscripten)[^-]*\.whl$"
)
OWN_PYTHON = re.compile(r"-cp(3)(\d+)-(?!abi3)[^-]+-[^-]+\.whl$")


@dataclass(frozen=True, kw_only=True)
class LockedFile:
    """One file of a package; `direct`: no index has it."""

    name: str
    url: str
    hashes: tuple[str, ...]
    version: str
    direct: bool = False


class PylockReader(ProjectReader):
    """A pylock; `lines` are those of the packages in the file that it was made of, where it is not the user's own."""

    def __init__(
        self, path: Path, *, file: str, tree: Table, choice: InputChoice, lines: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(path, file=file, tree=tree, choice=choice)
        self.lines = lines
        self.indexes: Counter[str] = Counter()
        self.pythons: list[set[int]] = []  # of each package: the minor versions that its files are for

    def read_recipe(self) -> Recipe:
        """Read the file; raises ConfigError with all its faults."""
        self._check_version()
        self._check_choice()
        packages = self.tree.get("packages")
        items = packages.items if isinstance(packages, Listing) else ()
        if not items:
            self._report("recipe-empty", "the lock has no packages", at=self._place(self.tree, "packages"), fix=AGAIN)
        for index, item in enumerate(items):
            try:
                self._read_package(item, key=f"packages[{index}]")
            except ConfigError as error:
                self.add_error(error)
        self._add_options()
        processors = self._list_processors()
        recipe = self.make_recipe(name=self._choose_name(), conda=self._read_python())
        container = recipe.container
        if container.python == "auto":  # a base image would keep packages of its own in the place of the lock's
            container = replace(container, python="env")
        return replace(recipe, kind="lock", processors=processors, container=container)

    def _report(self, code: str, message: str, *, at: Location, fix: str) -> None:
        self.add_error(make_config_error(code, message, at=at, fix=fix))

    def _place(self, value: Value, key: str, *, name: str = "") -> Location:
        """Where something is: in the file itself, or the line of its package in the file that this one was made of."""
        if self.lines is None:
            return self.locate(value.line, key)
        return Location(file=self.file, line=self.lines.get(name))

    def _choose_name(self) -> str:
        middle = self.path.name.removeprefix("pylock.").removesuffix("toml").rstrip(".")
        return self.choose_name(middle if self.path.name.startswith("pylock.") else "")

    def _check_version(self) -> None:
        value = self.tree.get("lock-version")
        if not isinstance(value, Text):
            message = "'lock-version' is missing: this is no lock of PEP 751, or its beginning is lost"
            self._report("pylock-version", message, at=self._place(self.tree, ""), fix=AGAIN)
        elif value.raw.partition(".")[0] != VERSION_READ.partition(".")[0]:
            message = f"the lock has format '{sanitize(value.raw)}', and {VERSION_READ} is read"
            at = self._place(value, "lock-version")
            self._report("pylock-version", message, at=at, fix=f"write the lock as format {VERSION_READ}")

    def _check_choice(self) -> None:
        """Report an extra or a group that the lock does not have; a lock of uv holds those that were chosen."""
        if self.lines is not None:
            return
        for code, option, key, wanted in (
            ("project-extra", "--extra", "extras", self.choice.extras),
            ("project-group", "--group", "dependency-groups", self.choice.groups),
        ):
            known = [item.raw for item, _ in self.list_texts(self.tree.get(key), key=key, what="names")]
            for name in wanted:
                if name not in known:
                    message = f"the lock has no '{sanitize(name)}' among its {key}"
                    at = Location(file=self.file, key=option)
                    fix = suggest_name(name, known=known, noun=key) if known else f"leave out {option}"
                    self._report(code, message, at=at, fix=fix)

    def _read_python(self) -> list[tuple[CondaSpec, Location]]:
        """The Python that the lock says, within those that its files are for."""
        value = self.tree.get("requires-python")
        at = self._place(value or self.tree, "requires-python")
        found = self.read_python(value, key="requires-python")
        minors = set.intersection(*self.pythons) if self.pythons else set[int]()
        if minors and (found is not None or value is None):
            said = SpecifierSet(value.raw if isinstance(value, Text) else "")
            fitting = [minor for minor in minors if any(said.contains(f"3.{minor}.{patch}") for patch in (0, 99))]
            low, high = min(fitting, default=0), max(fitting, default=0)
            words = [*(str(part) for part in said), f">=3.{low}", f"<3.{high + 1}"]
            found = self.read_python(Text(raw=",".join(words), line=at.line or 1), key="") if fitting else found
        return [(found, at)] if found else []

    def _list_processors(self) -> tuple[str, ...]:
        """The processors that the lock is for, none where it is for every one; a lock for no Linux is a fault."""
        found: set[str] = set()
        markers = self.list_texts(self.tree.get("environments"), key="environments", what="markers")
        for marker, key in markers:
            try:
                at = self._place(marker, key)
                found |= {arch for arch in PROCESSORS if decide_marker(marker.raw, arch=arch, at=at) is not False}
            except ConfigError as error:
                self.add_error(error)
        if markers and not found:
            shown = ", ".join(sanitize(marker.raw) for marker, _ in markers[:3])
            message = f"the lock is for other systems alone: {shown}"
            at = self._place(self.tree.get("environments") or self.tree, "environments")
            self._report("lock-platform", message, at=at, fix="lock on Linux, or for every system, as `uv lock` does")
        return () if not markers or len(found) == len(PROCESSORS) else tuple(sorted(found))

    def _read_package(self, item: Value, *, key: str) -> None:
        """Add the requirement of a package; raises ConfigError for its fault."""
        table = item if isinstance(item, Table) else Table(entries=(), line=item.line)
        name = self.get_text(table, "name", key=key)
        at = self._place(table, key, name=name)
        if not NAME.fullmatch(name):
            message = f"a package is called '{sanitize(name)}'" if name else "a package has no name"
            raise make_config_error("pylock-form", message, at=at, fix=AGAIN)
        marker = self._decide(self.get_text(table, "marker", key=key), at=at)
        if marker is None:
            return
        self._refuse_sources(name, table, at=at)
        files = list(self._list_files(name, table, at=at))
        here = [file for file in files if not ELSEWHERE.search(file.name)] or files
        version = self.get_text(table, "version", key=key) or next((file.version for file in here if file.version), "")
        if not VERSION.fullmatch(version):
            raise make_config_error("pylock-form", f"'{name}' has no version", at=at, fix=AGAIN)
        hashes = tuple(dict.fromkeys(value for file in here for value in file.hashes))
        index = self.get_text(table, "index", key=key)
        body = f"{name}=={version}"
        if name in TORCH_FAMILY:
            body, index = body.partition("+")[0], ""
        elif here[0].direct:
            body = f"{name} @ {here[0].url}"
        body += f" ; {marker}" if marker else ""
        line = replace(parse_requirement(body, hashes=hashes, at=at), files=tuple(file.name for file in here))
        self.reader.add_requirement(line, at=at)
        self.indexes.update([index] if index and TORCH_HOST not in index else [])
        if name not in TORCH_FAMILY and not marker:
            self._note_pythons(here)

    def _decide(self, marker: str, *, at: Location) -> str | None:
        """A marker without what the command line chose; "" where it always holds on Linux, None where it never does."""
        if not marker:
            return ""
        text = PART.sub(self._replace_part, marker)
        held = [decide_marker(text, arch=arch, at=at) for arch in PROCESSORS]
        return None if not any(one is not False for one in held) else "" if all(held) else text

    def _replace_part(self, found: re.Match[str]) -> str:
        chosen = set(self.choice.extras if found["kind"] == "extras" else self.choice.groups)
        return HOLDS if (found["name"] in chosen) != bool(found["no"]) else FAILS

    def _refuse_sources(self, name: str, table: Table, *, at: Location) -> None:
        if table.get("vcs") is not None:
            message = f"'{name}' comes from version control: a commit has no hash, and the others have"
            fix = "lock a release of it, or the address of a wheel"
            raise make_config_error("pylock-source", message, at=at, fix=fix)
        if table.get("directory") is not None:
            message = f"'{name}' is a folder of the machine that made the lock"
            fix = "leave it out of the lock (`uv export --no-emit-project --no-emit-local`), or lock a wheel of it"
            raise make_config_error("pylock-source", message, at=at, fix=fix)

    def _list_files(self, name: str, table: Table, *, at: Location) -> Iterator[LockedFile]:
        wheels = table.get("wheels")
        found = [(item, False) for item in wheels.items] if isinstance(wheels, Listing) else []
        found += [(item, kind == "archive") for kind in ("sdist", "archive") if (item := table.get(kind)) is not None]
        if not found:
            raise make_config_error("pylock-form", f"'{name}' has no files", at=at, fix=AGAIN)
        for item, direct in found:
            yield read_file(name, item, direct=direct, at=at)

    def _note_pythons(self, files: list[LockedFile]) -> None:
        """Note for which Pythons a package has files, where each is for one."""
        found = [OWN_PYTHON.search(file.name) for file in files]
        if found and all(found):
            self.pythons.append({int(one[2]) for one in found if one})

    def _add_options(self) -> None:
        """Ask the indexes of some packages, too: that of most packages is the one that pip and uv are set to."""
        self.reader.add_option("require-hashes", at=Location(file=self.file), base=self.path.parent)
        usual = [url for url, _ in self.indexes.most_common()]
        for url in usual[1:]:
            try:
                self.reader.add_option("extra-index-url", url, at=Location(file=self.file), base=self.path.parent)
            except ConfigError as error:
                self.add_error(error)


def read_file(name: str, item: Value, *, direct: bool, at: Location) -> LockedFile:
    """Read one file of a package; raises ConfigError where it has no address or no hash that pip takes."""
    table = item if isinstance(item, Table) else Table(entries=(), line=item.line)
    words = {key: _get(table, key) for key in ("name", "url", "path")}
    if not words["url"]:
        message = f"a file of '{name}' has no address: it is on the machine that made the lock"
        fix = "lock it from an index, or by the address of a wheel"
        raise make_config_error("pylock-source", message, at=at, fix=fix)
    file = unquote(words["name"] or words["url"].partition("#")[0].rpartition("/")[2])
    hashes = table.get("hashes")
    given = hashes.entries if isinstance(hashes, Table) else ()
    values = [f"{kind.raw}:{value.raw.lower()}" for kind, value in given if isinstance(value, Text)]
    kept = tuple(value for value in values if HASH.fullmatch(value))
    if not kept:
        kinds = [sanitize(kind.raw) for kind, _ in given]
        whole = f"no {kinds[0]} of the right length" if "sha256" in kinds else f"only {', '.join(kinds)}"
        message = f"'{sanitize(file)}' of '{name}' has {whole if kinds else 'no hash'}"
        message += ": a file of a lock is known by its sha256"
        raise make_config_error("pylock-hash", message, at=at, fix=AGAIN)
    return LockedFile(name=file, url=words["url"], hashes=kept, version=find_version(file), direct=direct)


def _get(table: Table, key: str) -> str:
    value = table.get(key)
    return value.raw if isinstance(value, Text) and value.kind == "text" else ""


def find_version(file: str) -> str:
    """The version in the name of a file, "" where it has none."""
    try:
        return str((parse_wheel_filename if file.endswith(".whl") else parse_sdist_filename)(file)[1])
    except (InvalidWheelFilename, InvalidSdistFilename):
        return ""


def list_package_lines(text: str) -> dict[str, int]:
    """The line of each package in a lock of uv."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if match := re.fullmatch(r'name = "([a-z0-9-]+)"', line):
            found.setdefault(match[1], number)
    return found


def read_pylock_recipe(
    path: Path, *, file: str, text: str, choice: InputChoice, lines: Mapping[str, int] | None = None
) -> Recipe:
    """Read a pylock of another tool; raises ConfigError with every fault."""
    tree = parse_toml(text, file=file, nodes=NODES)
    return PylockReader(path, file=file, tree=tree, choice=choice, lines=lines).read_recipe()
