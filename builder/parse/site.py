"""Find, extend, decode and check site files: bundled ones, a user's own from folders, or one given by its path."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from builder.model.finding import ConfigError, Finding, Location, suggest_name
from builder.model.site import Site
from builder.model.text import sanitize
from builder.parse.decoder import Decoder, find_key_type
from builder.parse.site_rules import check_site
from builder.parse.yaml import Listing, Table, Text, Value, parse_yaml, read_text

PACKAGE = Path(__file__).resolve().parents[1]


def find_data_folder(name: str) -> Path:
    """Return the folder of "recipes" or "sites"."""
    inside = PACKAGE / "data" / name
    return inside if inside.is_dir() else PACKAGE.parent / name


BUNDLED = find_data_folder("sites")
_HOSTS = re.compile(r"^hostnames: \[(.*)\]$", re.MULTILINE)
EXTENDS_LIMIT = 8
FOLLOW_DRIVER = (
    "driver_checked", "other_driver", "other_driver_checked", "rocm", "rocm_disputed", "rocm_safe", "cuda_native",
)  # fmt: skip
OF_BACKENDS = ("backend_modules", "backend_versions")

TEMPLATES = BUNDLED / "templates"  # no machines: a file of the user's extends one of them

Layers = tuple[tuple[str, Table], ...]  # each file with its own table, the extending one first
Folders: TypeAlias = "Path | Sequence[Path] | None"  # of the user's own sites, the first one wins


def find_site_files(folder: Folders = None) -> dict[str, Path]:
    """Return every site file that can be found; a user's own replaces a bundled one of the same name."""
    return {name: paths[0] for name, paths in sorted(_find_files(folder).items())}


def _find_files(folder: Folders) -> dict[str, list[Path]]:
    """Return the files of each name, in the order of the folders; the bundled one is the last."""
    found: dict[str, list[Path]] = {}
    for place in _list_folders(folder):
        for suffix in ("yml", "yaml"):
            for path in sorted(place.glob(f"*.{suffix}")):
                found.setdefault(path.stem, []).append(path)
    for name, path in _list_bundled():
        found.setdefault(name, []).append(path)
    return found


def _list_folders(folder: Folders) -> list[Path]:
    """Return the folders that can be read."""
    named = [] if folder is None else [folder] if isinstance(folder, Path) else folder
    return [place for place in named if _is_readable(place)]


@cache
def _list_bundled() -> tuple[tuple[str, Path], ...]:
    return tuple((path.stem, path) for path in sorted(BUNDLED.glob("*.yaml")))


def _is_readable(folder: Path) -> bool:
    """Whether a folder of sites is there and can be listed; a home that is another user's may not be looked into."""
    try:
        next(folder.iterdir(), None)
    except OSError:
        return False
    return True


def read_bundled_hostnames() -> dict[str, tuple[str, ...]]:
    """Return the shell patterns of the host names of each bundled site, without reading the rest of its file."""
    found = {path.stem: _HOSTS.search(path.read_text(encoding="utf-8")) for _, path in _list_bundled()}
    return {name: tuple(re.findall(r"[\w*?-]+", match[1])) if match else () for name, match in found.items()}


def find_disk_owners(path: str) -> list[str]:
    """The bundled sites that have base images on the disk of a path, by its first two folders: /appl/local."""
    top = "/".join(path.split("/")[:3])
    form = re.compile(rf"^\s*-?\s*reference:\s*{re.escape(top)}/", re.MULTILINE)
    return [name for name, file in _list_bundled() if form.search(file.read_text(encoding="utf-8"))]


def load_site(name: str, *, folder: Folders = None) -> Site:
    """Load a site by its name or by the path of its file; raises ConfigError with every fault of the file.

    The files of other sites are not read, but for those that this one extends.
    """
    known = _find_files(folder)
    looks_like_path = "/" in name or name.endswith((".yaml", ".yml"))
    if not looks_like_path and name not in known:
        fix = suggest_name(name, known=known, noun="known sites")
        raise ConfigError(Finding(code="site-unknown", message=f"there is no site '{sanitize(name)}'", fix=fix))
    path = Path(name) if looks_like_path else known[name][0]
    # What ships with us is read once; a folder of the user's may hold another file that it extends.
    if path.parent == BUNDLED and not _list_folders(folder):
        return _load_bundled(path)
    return _load(path, known=known)


@cache
def _load_bundled(path: Path) -> Site:
    return _load(path, known=_find_files(None))


def _load(path: Path, *, known: dict[str, list[Path]]) -> Site:
    faults: list[Finding] = []
    layers, whole = _read_layers(path, known=known, faults=faults)
    if not layers:
        raise ConfigError(*faults)
    tree = layers[-1][1]
    for _, own in reversed(layers[:-1]):
        tree = _merge(_drop_old_backends(_drop_old_driver(tree, own), own), own, kind=Site)
    decoder = Decoder(file=str(path))
    site: Site | None = decoder.decode_table(tree, Site, key="")
    found = decoder.findings
    if site is not None and not found:
        found = list(check_site(site, tree=tree, stem=path.stem))
    # What is missing may stand in the file that could not be read.
    faults += [_locate(fault, layers) for fault in found if whole or fault.code != "missing-key"]
    if site is None or faults:
        raise ConfigError(*sorted(faults, key=_order))
    return site


def _read_layers(path: Path, *, known: dict[str, list[Path]], faults: list[Finding]) -> tuple[Layers, bool]:
    """Read a site file and those it extends, which it overrides; return False if one could not be read."""
    layers: list[tuple[str, Table]] = []
    seen: list[Path] = []
    try:
        while True:
            tree = _read(path, faults=faults)
            seen.append(path.resolve())
            left_out = ("extends", "name") if layers else ("extends",)  # a name is never inherited
            own = Table(entries=tuple(entry for entry in tree.entries if entry[0].raw not in left_out), line=tree.line)
            layers.append((str(path), own))
            if tree.get("extends") is None:
                return tuple(layers), True
            path = _load_base(tree, path, known=known, seen=seen)
    except ConfigError as error:
        faults.extend(error.findings)
        return tuple(layers), False


def _load_base(tree: Table, path: Path, *, known: dict[str, list[Path]], seen: Sequence[Path]) -> Path:
    """Find the file that a site file extends; raises ConfigError.

    One of its own name is that of a later folder: a user's `lumi-g.yaml` may extend the bundled `lumi-g`.
    """
    parent = tree.get("extends")
    at = Location(file=str(path), line=tree.get_line("extends"), key="extends")
    word = parent.raw if isinstance(parent, Text) else ""
    files = [*known.get(word, ()), *(file for file in _list_templates() if file.stem == word)]
    if not files:
        shown = f"'{sanitize(word)}' " if word else ""
        message = f"there is no site {shown}to extend"
        names = [*known, *(file.stem for file in _list_templates())]
        fix = suggest_name(word, known=names, noun="known sites")
        raise ConfigError(Finding(code="site-extends", message=message, at=at, fix=fix))
    if path.stem == word:
        later = [number for number, file in enumerate(files) if file.resolve() == path.resolve()]
        files = files[later[-1] + 1 :] if later else files
    target: Path | None = next((file for file in files if file.resolve() not in seen), None)
    if target is None or len(seen) > EXTENDS_LIMIT:
        message = f"'{path.stem}' extends itself in a circle"
        raise ConfigError(Finding(code="site-extends", message=message, at=at, fix="break the circle"))
    return target


@cache
def _list_templates() -> tuple[Path, ...]:
    return tuple(sorted(TEMPLATES.glob("*.yaml")))


def _read(path: Path, *, faults: list[Finding]) -> Table:
    tree, found = _read_bundled(path) if path.parent in (BUNDLED, TEMPLATES) else _parse(path)
    faults += found
    return tree


def _parse(path: Path) -> tuple[Table, tuple[Finding, ...]]:
    """Parse a site file to its table and its faults; raises ConfigError."""
    faults: list[Finding] = []
    value = parse_yaml(
        read_text(path, what="site file"), file=str(path), faults=faults, bundled=path.parent in (BUNDLED, TEMPLATES)
    )
    if isinstance(value, Table):
        return value, tuple(faults)
    message = f"the site file holds {'nothing' if value is None else 'no table of keys'}"
    fix = "`recipe init site` writes an example"
    raise ConfigError(Finding(code="site-empty", message=message, at=Location(file=str(path)), fix=fix))


_read_bundled = cache(_parse)  # several sites may extend it


def _drop_old_driver(base: Table, own: Table) -> Table:
    """Remove what follows from a driver if another one is given: the tables or the file give it again."""
    gpu, new = base.get("gpu"), own.get("gpu")
    if not isinstance(gpu, Table) or not isinstance(new, Table) or new.get("driver") is None:
        return base
    kept = [entry for entry in gpu.entries if entry[0].raw not in FOLLOW_DRIVER]
    kept.append((Text(raw="driver_checked", line=new.line), Text(raw="unknown", line=new.line)))
    return _replace_value(base, "gpu", Table(entries=tuple(kept), line=gpu.line))


def _drop_old_backends(base: Table, own: Table) -> Table:
    """Remove the modules and versions of backends that a new list of backends does not have."""
    build, new = base.get("build"), own.get("build")
    listed = new.get("backends") if isinstance(new, Table) else None
    if not isinstance(build, Table) or not isinstance(listed, Listing):
        return base
    names = {item.raw for item in listed.items if isinstance(item, Text)}
    for key in OF_BACKENDS:
        table = build.get(key)
        if isinstance(table, Table):
            kept = tuple(entry for entry in table.entries if entry[0].raw in names)
            build = _replace_value(build, key, Table(entries=kept, line=table.line))
    return _replace_value(base, "build", build)


def _replace_value(table: Table, key: str, new: Value) -> Table:
    entries = tuple((name, new if name.raw == key else value) for name, value in table.entries)
    return Table(entries=entries, line=table.line)


def _merge(base: Table, own: Table, *, kind: Any) -> Table:
    """Override one table by another, table by table; lists and scalars replace, and so does an empty table.

    Nothing (`key:`) over an optional key removes it.
    """
    entries = {name.raw: (name, value) for name, value in base.entries}
    for name, value in own.entries:
        before = entries.get(name.raw)
        below, optional = find_key_type(kind, name.raw)
        if before is not None and optional and isinstance(value, Text) and value.kind == "null":
            del entries[name.raw]
            continue
        if before is not None and isinstance(before[1], Table) and isinstance(value, Table) and value.entries:
            value = _merge(before[1], value, kind=below)
        entries[name.raw] = (name, value)
    return Table(entries=tuple(entries.values()), line=own.line)


def _locate(fault: Finding, layers: Layers) -> Finding:
    """Add to a fault the file that contains it, and the line of its key: the nearest key that is written."""
    at = fault.at or Location()
    key = at.key
    while True:
        for file, tree in layers:
            line = _find_line(tree, key)
            if line is not None:
                exact = at.line if key == at.key and at.line is not None else line
                place = Location(file=file, line=exact, key=sanitize(at.key, limit=120))
                return dataclasses.replace(fault, message=sanitize(fault.message, limit=240), at=place)
        key = key[: max(key.rfind("."), key.rfind("["), 0)]


def _order(fault: Finding) -> tuple[str, int]:
    return (fault.at.file, fault.at.line or 0) if fault.at else ("", 0)


def _find_line(value: Value, key: str) -> int | None:
    if not key:
        return value.line
    if isinstance(value, Listing):
        match = re.match(r"\[(\d+)\]\.?", key)
        if match is None or int(match[1]) >= len(value.items):
            return None
        return _find_line(value.items[int(match[1])], key[match.end() :])
    if isinstance(value, Table):
        for name, item in value.entries:
            rest = key.removeprefix(name.raw)
            if rest == "" and key:
                return name.line
            if rest != key and rest[0] in ".[":
                return _find_line(item, rest.removeprefix("."))
    return None
