"""Locks of conda packages by other tools to the normal form of a recipe: conda-lock.yml, pixi.lock, @EXPLICIT lists.

Each package is a dependency with its exact version, build and channel, and with the hashes that its file must have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from builder.model.finding import ConfigError, Finding, Location, suggest_name
from builder.model.recipe import CondaSpec, InputChoice, InputKind, Recipe
from builder.model.site import SUBDIRS
from builder.model.text import make_config_error, sanitize
from builder.parse.environment_yml import sort_findings
from builder.parse.lock_files import TORCH_FAMILY
from builder.parse.matchspec import parse_conda_spec
from builder.parse.project import EMPTY, ProjectReader
from builder.parse.pylock import AGAIN, find_version
from builder.parse.requirement import parse_requirement
from builder.parse.yaml import Listing, Table, Text, Value, parse_yaml
from builder.sif.bounded import hash_text

NODES = 400_000  # values: a package of conda-lock has twenty for each platform
USUAL_HOST = "https://conda.anaconda.org/"
HASHES = {"sha256": re.compile(r"[0-9a-f]{64}"), "md5": re.compile(r"[0-9a-f]{32}")}
ADDRESS = re.compile(r"(?P<url>[^#\s]+)(?:#(?:sha256:)?(?P<hash>[0-9a-f]+))?")
EXPLICIT = "@EXPLICIT"


@dataclass(frozen=True, kw_only=True)
class LockedPackage:
    """One package of a lock on one platform ("" for a list that names none)."""

    manager: str  # conda, pip
    platform: str
    url: str
    hashes: Mapping[str, str]
    at: Location
    name: str = ""
    version: str = ""
    again: str = AGAIN  # how the lock is written with hashes


class CondaLockReader(ProjectReader):
    """The packages of one platform; all faults are collected, and raised together."""

    def __init__(self, path: Path, *, file: str, choice: InputChoice) -> None:
        super().__init__(path, file=file, tree=EMPTY, choice=choice)
        self.specs: list[tuple[CondaSpec, Location]] = []
        self.channels: Counter[str] = Counter()

    def read_recipe(self, packages: list[LockedPackage], *, name: str) -> Recipe:
        """The recipe of these packages; raises ConfigError with every fault."""
        for package in packages:
            try:
                if package.manager == "conda":
                    self._add_conda(package)
                else:
                    self._add_pip(package)
            except ConfigError as error:
                self.add_error(error)
        channels = tuple(channel for channel, _ in self.channels.most_common()) or ("conda-forge",)
        if self.reader.requirements:
            self.reader.add_option("require-hashes", at=Location(file=self.file), base=self.path.parent)
        specs = [(_name_channel(spec, first=channels[0]), at) for spec, at in self.specs]
        recipe = self.make_recipe(name=name, conda=specs, channels=channels)
        return replace(recipe, kind="lock", container=replace(recipe.container, python="env"))

    def _add_conda(self, package: LockedPackage) -> None:
        if not package.url.endswith((".conda", ".tar.bz2")):
            message = f"'{sanitize(package.name or package.url)}' has no address of a package of conda"
            raise make_config_error("conda-url", message, at=package.at, fix=AGAIN)
        spec = parse_conda_spec(package.url, at=package.at)
        channel = package.url.rsplit("/", 2)[0].removeprefix(USUAL_HOST)
        self.channels.update([channel])
        hashes = _list_hashes(package)
        version = spec.version.removeprefix("==")
        text = f"{spec.name}={version}={spec.build}"
        self.specs.append((replace(spec, text=text, url="", channel=channel, hashes=hashes), package.at))

    def _add_pip(self, package: LockedPackage) -> None:
        file = package.url.partition("#")[0].rpartition("/")[2]
        name = canonicalize_name(package.name or file.partition("-")[0])
        version = package.version or find_version(file)
        if "://" not in package.url or package.url.startswith(("git+", "file:")) or not version:
            message = f"'{sanitize(package.name or package.url)}' is no file of an index: it has no hash that stays"
            fix = "name a release of it where the lock is made, and lock again"
            raise make_config_error("pylock-source", message, at=package.at, fix=fix)
        hashes = tuple(one for one in _list_hashes(package) if one.startswith("sha256:"))
        if not hashes:
            message = f"'{name}' has no sha256: pip compares no other hash of a lock"
            raise make_config_error("pylock-hash", message, at=package.at, fix=AGAIN)
        version = version.partition("+")[0] if name in TORCH_FAMILY else version
        line = parse_requirement(f"{name}=={version}", hashes=hashes, at=package.at)
        self.reader.add_requirement(replace(line, files=(file,)), at=package.at)


def _name_channel(spec: CondaSpec, *, first: str) -> CondaSpec:
    """Name the channel of a package where it is not the first one, whose packages hide those of the others."""
    return spec if spec.channel == first else replace(spec, text=f"{spec.channel}::{spec.text}")


def _list_hashes(package: LockedPackage) -> tuple[str, ...]:
    """The hashes of a package; raises ConfigError where it has none."""
    found = [f"{kind}:{value}" for kind, value in package.hashes.items() if HASHES[kind].fullmatch(value)]
    if not found:
        shown = sanitize(package.name or package.url.rpartition("/")[2])
        message = f"'{shown}' has no sha256 and no md5: a file of a lock is known by its hash"
        raise make_config_error("pylock-hash", message, at=package.at, fix=package.again)
    return tuple(found)


def _read_explicit(text: str, *, file: str, choice: InputChoice) -> Iterator[LockedPackage | ConfigError]:
    """The packages of a list of addresses, as `conda list --explicit` and `conda-lock --kind explicit` write it."""
    del choice
    platform = ""
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.strip()
        if found := re.fullmatch(r"#\s*platform:\s*(\S+)", words):
            platform = found[1]
        if not words or words.startswith("#") or words == EXPLICIT:
            continue
        match = ADDRESS.fullmatch(words)
        at = Location(file=file, line=number)
        if match is None:
            message = f"'{sanitize(words)}' is no address of a package"
            yield make_config_error("conda-url", message, at=at, fix="write one https:// address and its hash a line")
            continue
        value = match["hash"] or ""
        kind = "sha256" if len(value) == 64 else "md5"
        subdir = match["url"].rpartition("/")[0].rpartition("/")[2]
        place = platform or ("" if subdir == "noarch" else subdir)
        hashes = {kind: value} if value else {}
        again = "write it with `conda list --explicit --md5`"
        yield LockedPackage(manager="conda", platform=place, url=match["url"], hashes=hashes, at=at, again=again)


def _read_conda_lock(text: str, *, file: str, choice: InputChoice) -> Iterator[LockedPackage | ConfigError]:
    """The packages of a unified lock of conda-lock: those of its category `main`, and of those that --group names."""
    tree = _parse(text, file=file)
    _check_version(
        tree,
        file=file,
        known=("1",),
        tool="conda-lock",
        fix="lock again with a release of conda-lock that writes format 1",
    )
    packages = tree.get("package")
    wanted = {"main", "", *choice.groups}
    for index, item in enumerate(packages.items if isinstance(packages, Listing) else ()):
        table = item if isinstance(item, Table) else Table(entries=(), line=item.line)
        at = Location(file=file, line=item.line, key=f"package[{index}]")
        words = {key: _get(table, key) for key in ("name", "version", "manager", "platform", "url", "category")}
        if words["manager"] not in ("conda", "pip") or not words["name"] or not words["platform"]:
            message = "a package has no name, no platform, or a manager that is not conda or pip"
            yield make_config_error("pylock-form", message, at=at, fix=AGAIN)
            continue
        if words["category"] not in wanted:
            continue
        hashes = table.get("hash")
        found = {kind: _get(hashes, kind) for kind in HASHES if isinstance(hashes, Table) and _get(hashes, kind)}
        yield LockedPackage(
            manager=words["manager"], platform=words["platform"], url=words["url"], hashes=found, at=at,
            name=words["name"], version=words["version"],
        )  # fmt: skip


def _read_pixi_lock(text: str, *, file: str, choice: InputChoice) -> Iterator[LockedPackage | ConfigError]:
    """The packages of an environment of a pixi.lock."""
    tree = _parse(text, file=file)
    fix = "run `pixi lock` with a release of pixi that writes format 6"
    _check_version(tree, file=file, known=("6", "7"), tool="pixi", fix=fix)
    environments, name = tree.get("environments"), choice.environment or "default"
    chosen = environments.get(name) if isinstance(environments, Table) else None
    if not isinstance(environments, Table) or not isinstance(chosen, Table):
        names = [key.raw for key, _ in environments.entries] if isinstance(environments, Table) else []
        fix = suggest_name(name, known=names, noun="its environments") if names else AGAIN
        message = f"the lock has no environment '{sanitize(name)}'"
        raise make_config_error("pixi-environment", message, at=Location(file=file, key="--environment"), fix=fix)
    listed = tree.get("packages")
    items = listed.items if isinstance(listed, Listing) else ()
    known = {(kind, _get(item, kind)): item for item in items if isinstance(item, Table) for kind in ("conda", "pypi")}
    platforms = chosen.get("packages")
    for platform, entries in platforms.entries if isinstance(platforms, Table) else ():
        for entry in entries.items if isinstance(entries, Listing) else ():
            kind = "conda" if isinstance(entry, Table) and _get(entry, "conda") else "pypi"
            url = _get(entry, kind) if isinstance(entry, Table) else ""
            at = Location(file=file, line=entry.line)
            if url in (".", "./"):  # the project itself, which no image has
                continue
            table = known.get((kind, url))
            if table is None:
                message = f"'{sanitize(url)}' of the environment '{sanitize(name)}' is not among the packages"
                yield make_config_error("pylock-form", message, at=at, fix=AGAIN)
                continue
            hashes = {one: _get(table, one) for one in HASHES if _get(table, one)}
            yield LockedPackage(
                manager="conda" if kind == "conda" else "pip", platform=platform.raw, url=url, hashes=hashes,
                at=Location(file=file, line=table.line), name=_get(table, "name"), version=_get(table, "version"),
            )  # fmt: skip


def _parse(text: str, *, file: str) -> Table:
    tree: Value | None = parse_yaml(text, file=file, nodes=NODES)
    return tree if isinstance(tree, Table) else EMPTY


def _check_version(tree: Table, *, file: str, known: tuple[str, ...], tool: str, fix: str) -> None:
    """Raise ConfigError for a lock of another format."""
    value = tree.get("version")
    version = value.raw if isinstance(value, Text) else ""
    if version in known:
        return
    message = f"the lock of {tool} has format '{sanitize(version)}', and {' and '.join(known)} are read"
    if len(known) == 1:
        message = message.replace("are read", "is read")
    if not version:
        message, fix = f"'version' is missing: this is no lock of {tool}, or its beginning is lost", AGAIN
    at = Location(file=file, line=tree.get_line("version"), key="version")
    raise make_config_error("pylock-version", message, at=at, fix=fix)


def _get(table: Table, key: str) -> str:
    value = table.get(key)
    return value.raw if isinstance(value, Text) and value.kind != "null" else ""


READERS: Mapping[InputKind, Callable[..., Iterator[LockedPackage | ConfigError]]] = {
    "explicit": _read_explicit,
    "conda-lock": _read_conda_lock,
    "pixi-lock": _read_pixi_lock,
}


def read_conda_lock_recipe(path: Path, *, file: str, text: str, kind: InputKind, choice: InputChoice) -> Recipe:
    """Read a lock of conda packages, for each processor that it has; raises ConfigError with every fault."""
    items = list(READERS[kind](text, file=file, choice=choice))
    packages = [item for item in items if isinstance(item, LockedPackage)]
    faults = [finding for item in items if isinstance(item, ConfigError) for finding in item.findings]
    found = _read_processors(packages, path, file=file, choice=choice, faults=faults)
    if not items:
        message = "the lock has no packages"
        raise make_config_error("recipe-empty", message, at=Location(file=file), fix=AGAIN)
    if faults:
        raise ConfigError(*sort_findings(dict.fromkeys(faults), file=file))
    if not found:
        platforms = sorted({package.platform for package in packages})
        message = f"the lock is for other systems alone: {', '.join(map(sanitize, platforms))}"
        fix = f"lock for {' and '.join(SUBDIRS.values())}, too, with the tool that made it"
        raise make_config_error("lock-platform", message, at=Location(file=file), fix=fix)
    digest = hash_text(" ".join(dict.fromkeys(recipe.digest for recipe in found.values())))
    kept = tuple(found) if len(found) < len(SUBDIRS) else ()
    recipes = {arch: replace(recipe, digest=digest, processors=kept) for arch, recipe in found.items()}
    first, *others = recipes
    return replace(recipes[first], by_processor={arch: recipes[arch] for arch in others})


def _read_processors(
    packages: list[LockedPackage], path: Path, *, file: str, choice: InputChoice, faults: list[Finding]
) -> dict[str, Recipe]:
    """The recipe for each processor that the lock has packages for; what is wrong is added to `faults`."""
    found: dict[str, Recipe] = {}
    anywhere = all(not package.platform for package in packages)  # a list of packages for every platform
    for arch, subdir in SUBDIRS.items():
        reader = CondaLockReader(path, file=file, choice=choice)
        chosen = [package for package in packages if package.platform in (subdir, "")]
        if not chosen or not (anywhere or any(package.platform == subdir for package in chosen)):
            continue
        try:
            found[arch] = reader.read_recipe(chosen, name=reader.choose_name(""))
        except ConfigError as error:
            faults += error.findings
    return found
