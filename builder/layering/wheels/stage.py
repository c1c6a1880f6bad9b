"""Packages unpacked on this machine as they will lie in the image."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..failure import LayeringError
from ..offline import FIX
from ..programs import ask
from .resolve import NO_WHEEL, UNSEEN, Group, NeedsSourcesError, Resolver

PREFIX = "/opt/env"
DROPPED = ("direct_url.json", "uv_cache.json", "uv_build.json")  # these name paths and times of this machine


def install(
    group: Group, tree: Path, *, resolver: Resolver, minor: str, number: str, online: Callable[[], None]
) -> Path:
    """Unpack the wheels of a group below `tree`, which stands for the environment's folder; its site-packages.

    `online` is called before anything is downloaded.
    """
    file = resolver.work / f"{number}.txt"
    file.write_text("".join(f"{pin.text}\n" for pin in group.pins), encoding="utf-8")
    hashes = ["--require-hashes"] if all(pin.hashes for pin in group.pins) else []
    tree.mkdir(parents=True)
    argv = [resolver.uv, "pip", "install", "--quiet", "--no-deps", *hashes, "--python", sys.executable]
    argv += ["--prefix", str(tree), *resolver.target, *group.options, "-r", str(file)]
    env = resolver.env(own_index=group.own_index)
    # What was resolved a moment ago is mostly there: no index is asked again for files that are named by their hashes.
    code, err = 1, ""
    if hashes:
        code, _, err = ask([*argv, "--offline"], env=env)
    if code:
        online()
        code, _, err = ask(argv, env=env)
    if code:
        print(err.strip()[-4000:], flush=True)
        if resolver.offline and UNSEEN.search(err):
            raise LayeringError(f"wheels of '{group.title}' were not fetched before, and no server is asked", fix=FIX)
        if NO_WHEEL.search(err):
            raise NeedsSourcesError("a package of the lock is no wheel")
        raise LayeringError(f"the wheels of layer '{group.title}' could not be unpacked", told=True)
    return tidy(tree, minor=minor)


def tidy(tree: Path, *, minor: str) -> Path:
    """Take this machine out of an installation: its Python's version and path, its own notes. Returns site-packages."""
    own = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for parent in (tree / "lib", tree / "include" / "site"):
        if own != f"python{minor}" and (parent / own).is_dir():
            (parent / own).rename(parent / f"python{minor}")
    (tree / ".lock").unlink(missing_ok=True)
    site = tree / "lib" / f"python{minor}" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    changed = _scripts(tree / "bin")
    for info in sorted(site.glob("*.dist-info")):
        _record(info, site=site, changed=changed, own=own, minor=minor)
    return site


def _scripts(folder: Path) -> dict[Path, bytes]:
    """Give console scripts the image's Python; returns what was written."""
    changed = {}
    own = sys.executable.encode()
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not path.is_file() or path.is_symlink():
            continue
        with path.open("rb") as file:
            head = file.read(4096)
            if not head.startswith(b"#!") or own not in head:
                continue
            text = head + file.read()
        first, _, rest = text.partition(b"\n")
        if first == b"#!/bin/sh" and rest.startswith(b"'''exec'"):
            rest = rest.split(b"\n", 2)[2]  # how installers write a path that is too long for the first line
        elif own not in first:
            continue
        text = f"#!{PREFIX}/bin/python\n".encode() + rest
        path.unlink()  # it may be a link into uv's cache
        path.write_bytes(text)
        path.chmod(0o755)
        changed[path] = text
    return changed


def _record(info: Path, *, site: Path, changed: dict[Path, bytes], own: str, minor: str) -> None:
    """Bring RECORD up to date with what was changed."""
    record = info / "RECORD"
    try:
        rows = list(csv.reader(io.StringIO(record.read_text(encoding="utf-8"))))
    except OSError:
        return
    kept = []
    dropped = {f"{info.name}/{name}" for name in DROPPED}
    for row in rows:
        if not row:
            continue
        name = row[0]
        if name in dropped:
            (site / name).unlink(missing_ok=True)
            continue
        if name.startswith(".."):  # of thousands of files these alone lie outside: scripts, headers
            name = name.replace(f"/{own}/", f"/python{minor}/")
            path = Path(os.path.normpath(site / name))
            if path in changed:
                digest = base64.urlsafe_b64encode(hashlib.sha256(changed[path]).digest()).rstrip(b"=").decode()
                row = [name, f"sha256={digest}", str(len(changed[path]))]
        kept.append([name, *row[1:]])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(sorted(kept))
    record.unlink()
    record.write_text(out.getvalue(), encoding="utf-8")


def owners(site: Path, tree: Path) -> dict[str, list[str]]:
    """The .py files of every distribution by its normal name, relative to `tree`."""
    from .resolve import normal

    found: dict[str, list[str]] = {}
    here = os.path.relpath(site, tree)
    for info in sorted(site.glob("*.dist-info")):
        name = normal(info.name.removesuffix(".dist-info").rsplit("-", 1)[0])
        try:
            rows = csv.reader(io.StringIO((info / "RECORD").read_text(encoding="utf-8")))
            paths = (os.path.normpath(f"{here}/{row[0]}") for row in rows if row and row[0].endswith(".py"))
            # A RECORD is a package's word: nothing outside the environment, no line of a list.
            found[name] = sorted(path for path in paths if path.isprintable() and not path.startswith(("/", "../")))
        except OSError:
            continue
    return found


def environment_files(tree: Path, *, python: str, minor: str, system_packages: bool) -> None:
    """The files that make a folder a virtual environment on the image's Python."""
    folder = tree / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in (("python3", python), ("python", "python3"), (f"python{minor}", "python3")):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
    (tree / "lib" / f"python{minor}" / "site-packages").mkdir(parents=True, exist_ok=True)
    if not (tree / "lib64").exists():
        (tree / "lib64").symlink_to("lib")
    words = "true" if system_packages else "false"
    home = Path(python).parent
    (tree / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = {words}\nversion = {minor}\n")


def names_of(groups: Sequence[Group]) -> list[str]:
    """Every package of some groups, as name==version."""
    return sorted(f"{pin.name}=={pin.version}" for group in groups for pin in group.pins)
