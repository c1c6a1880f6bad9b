"""Wheels, unpacked on this machine for their place in the image."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ..sif.errors import LayeringError
from ..sif.programs import ask
from ..sif.removal import remove
from ..sif.tree import FILE, is_folder, link, move, open_folder_below, read, stat_path, walk, write
from .spec import FIX
from .uv import UNPACKING
from .wheel_checks import check_said, check_wheels
from .wheels import NO_WHEEL, UNSEEN, Group, NeedsSourcesError, Resolver

PREFIX = "/opt/env"
RECORD = 64 << 20  # bytes of the list of one wheel's files
DROPPED = ("direct_url.json", "uv_cache.json", "uv_build.json")  # they have paths and times of this machine


def install_wheels(
    group: Group,
    tree: Path,
    *,
    resolver: Resolver,
    minor: str,
    number: str,
    online: Callable[[], None],
    requested: Collection[str] = (),
) -> Path:
    """Unpack the wheels of a group below `tree`, the environment's folder; return its site-packages.

    `online` is called before anything is downloaded. `requested` are the packages that the recipe names. Raises
    LayeringError for a wheel that is not whole.
    """
    file = resolver.work / f"{number}.txt"
    file.write_text("".join(f"{pin.text}\n" for pin in group.pins), encoding="utf-8")
    hashes = ["--require-hashes"] if all(pin.hashes for pin in group.pins) else []
    tree.mkdir(parents=True)
    argv = [resolver.uv, "pip", "install", "--quiet", "--no-deps", *hashes, "--python", sys.executable]
    argv += ["--prefix", str(tree), *resolver.target, *group.options, "-r", str(file)]
    env = {**resolver.make_environment(own_index=group.own_index), **UNPACKING}
    pins = [f"`{pin.name}=={pin.version}`" for pin in group.pins]
    check_said("\n".join(line for line in resolver.said if any(pin in line for pin in pins)), resolver=resolver)
    # What was resolved a moment ago is mostly cached: files with hashes need no index.
    code, err = 1, ""
    if hashes:
        code, _, err = ask([*argv, "--offline"], env=env)  # after a failure it runs again, with the network
        check_said(err, resolver=resolver)
    if code:
        online()
        with resolver.count_download(group, file):
            code, _, err = ask(argv, env=env)
        check_said(err, resolver=resolver)
    if code:
        print("\n".join(line for line in err.splitlines() if not line.startswith("DEBUG "))[-4000:].strip(), flush=True)
        if resolver.offline and UNSEEN.search(err):
            raise LayeringError(f"wheels of '{group.title}' were not fetched before, and no server is asked", fix=FIX)
        if NO_WHEEL.search(err):
            raise NeedsSourcesError("a package of the lock is no wheel")
        raise LayeringError(f"the wheels of layer '{group.title}' could not be unpacked", told=True)
    site = normalize_installation(tree, minor=minor)
    inside = os.path.relpath(site, tree)
    check_wheels(group, tree, inside, records=_list_records(tree, inside), requested=requested)
    return site


def _list_records(tree: Path, inside: str) -> dict[str, list[str]]:
    """Return the paths of each RECORD, by the folder of its distribution."""
    infos = _list_infos(tree, inside)
    return {info: [row[0] for row in _read_rows(tree, f"{inside}/{info}/RECORD") or ()] for info in infos}


def normalize_installation(tree: Path, *, minor: str) -> Path:
    """Remove this machine from an installation: its Python's version and path, its records. Return site-packages."""
    own = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for parent in ("lib", "include/site"):
        if own != f"python{minor}" and is_folder(tree, f"{parent}/{own}"):
            move(tree, f"{parent}/{own}", tree, f"{parent}/python{minor}")
    remove(Path(".lock"), below=tree)
    inside = f"lib/python{minor}/site-packages"
    with open_folder_below(tree, inside, make=0o777):
        pass
    changed = _rewrite_scripts(tree)
    for info in _list_infos(tree, inside):
        _update_record(tree, inside, info, changed=changed, own=own, minor=minor)
    return tree / inside


def _list_infos(tree: Path, inside: str) -> list[str]:
    """Return the folders that describe what is installed."""
    with open_folder_below(tree, inside) as at:
        return sorted(name for name in os.listdir(at) if name.endswith(".dist-info"))


def _rewrite_scripts(tree: Path) -> dict[str, bytes]:
    """Give console scripts the image's Python; return what was written, by path."""
    changed = {}
    own = sys.executable.encode()
    for entry in walk(tree, "bin"):
        entry.enter = False
        if entry.kind != FILE:
            continue
        with open(entry.open(), "rb") as file:
            head = file.read(4096)
            if not head.startswith(b"#!") or own not in head:
                continue
            text = head + file.read()
        first, _, rest = text.partition(b"\n")
        if first == b"#!/bin/sh" and rest.startswith(b"'''exec'"):
            rest = rest.split(b"\n", 2)[2]  # how installers write a path too long for the first line
        elif own not in first:
            continue
        text = f"#!{PREFIX}/bin/python\n".encode() + rest
        write(tree, f"bin/{entry.name}", text, mode=0o755)  # a new file: the old one may be a link into uv's cache
        changed[f"bin/{entry.name}"] = text
    return changed


def _read_rows(tree: Path, record: str) -> list[list[str]] | None:
    try:
        return [row for row in csv.reader(io.StringIO(read(tree, record, limit=RECORD).decode())) if row]
    except (OSError, ValueError, csv.Error):
        return None


def _update_record(tree: Path, inside: str, info: str, *, changed: dict[str, bytes], own: str, minor: str) -> None:
    record = f"{inside}/{info}/RECORD"
    rows = _read_rows(tree, record)
    if rows is None:
        return
    kept = []
    dropped = {f"{info}/{name}" for name in DROPPED}
    for row in rows:
        name = row[0]
        if name in dropped:
            remove(Path(inside, name), below=tree)
            continue
        if name.startswith(".."):  # the few files outside: scripts, headers
            name = name.replace(f"/{own}/", f"/python{minor}/")
            text = changed.get(os.path.normpath(f"{inside}/{name}"))
            if text is not None:
                digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
                row = [name, f"sha256={digest}", str(len(text))]
        kept.append([name, *row[1:]])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(sorted(kept))
    write(tree, record, out.getvalue().encode())


def list_sources(site: Path, tree: Path) -> dict[str, list[str]]:
    """Return the .py files in `tree` of every distribution, by its normalised name."""
    from .wheels import normalize_name

    found: dict[str, list[str]] = {}
    here = os.path.relpath(site, tree)
    for info in _list_infos(tree, here):
        name = normalize_name(info.removesuffix(".dist-info").rsplit("-", 1)[0])
        rows = _read_rows(tree, f"{here}/{info}/RECORD")
        if rows is None:
            continue
        paths = (os.path.normpath(f"{here}/{row[0]}") for row in rows if row[0].endswith(".py") and row[0][0] != "/")
        # A RECORD is foreign: no path outside the environment, none with a line break.
        found[name] = sorted(path for path in paths if path.isprintable() and not path.startswith("../"))
    return found


def write_environment(tree: Path, *, python: str, minor: str) -> None:
    """Write the files that make a folder a virtual environment on the image's Python."""
    for name, target in (("python3", python), ("python", "python3"), (f"python{minor}", "python3")):
        link(tree, f"bin/{name}", target)
    with open_folder_below(tree, f"lib/python{minor}/site-packages", make=0o777):
        pass
    if stat_path(tree, "lib64") is None:
        link(tree, "lib64", "lib")
    text = f"home = {Path(python).parent}\ninclude-system-site-packages = false\nversion = {minor}\n"
    write(tree, "pyvenv.cfg", text.encode())


def list_pins(groups: Sequence[Group]) -> list[str]:
    """Return every package of some groups, as name==version."""
    return sorted(f"{pin.name}=={pin.version}" for group in groups for pin in group.pins)
