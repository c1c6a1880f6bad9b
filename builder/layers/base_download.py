"""The base image as a file of this machine."""

from __future__ import annotations

import json
import os
import time as clock
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..sif.errors import LayeringError, log_line
from ..sif.normalise import DATE, EPOCH, format_date
from ..sif.pack import Packer
from ..sif.programs import call, clean_environment, follow
from ..sif.removal import remove
from ..sif.sif import (
    ALIGNMENT,
    DATA_JSON,
    INSPECT,
    PARTITION,
    SQUASHFS,
    SYSTEM,
    SifError,
    add_object,
    copy_range,
    find_end,
    make_empty_sif,
    write_header,
)
from ..sif.tree import read, walk, write
from .cache import Store, compute_key
from .certificates import find_certificates
from .downloads import DownloadMeter
from .reference import HUB, HUB_SERVER, parse_reference
from .spec import FIX

FOLDER_OF_LABELS = ".singularity.d"
LABELS = f"{FOLDER_OF_LABELS}/labels.json"
LABELS_LIMIT = 1 << 20
FORMAT = 2  # version of cached base images; another number makes all of them again


def find_base_image(
    reference: str,
    *,
    store: Store,
    runtime: str,
    work: Path,
    packer: Packer,
    offline: bool,
    hold: Callable[[str], None],
) -> Path:
    """Return the base as a SIF: the file itself, or one made of an image in a registry; raises LayeringError.

    An image of a registry is cached by its digest; `hold` is called with the key before it is used. A tag may have
    moved: the registry gives its digest.
    """
    if reference.startswith("/"):
        path = Path(reference)
        if not path.is_file():
            raise LayeringError(f"the base image '{reference}' is missing", fix="give another one by --base")
        return path
    last = compute_key(["reference", reference])
    if offline:
        return _find_cached(reference, store=store, why="no server is asked", hold=hold)
    exact = reference if "@sha256:" in reference else pin_reference(reference)
    if exact is None:
        with suppress(LayeringError):
            why = f"the registry does not say where {reference} points"
            return _find_cached(reference, store=store, why=why, hold=hold)
        target = work / "moving.sif"
        _fetch(reference, target, runtime=runtime, packer=packer)
        return target
    key = compute_key([FORMAT, exact, os.uname().machine, packer.inputs])
    hold(key)
    entry, _ = store.get(
        "bases", key, title=exact, make=lambda path: _fetch(exact, path, runtime=runtime, packer=packer)
    )
    store.remember("known", last, key)
    return entry.path


def pin_reference(reference: str) -> str | None:
    """Return the reference with the digest of its tag; None if the registry does not tell."""
    if not reference.startswith("docker://"):
        return None
    # Most bases are files, and the client for registries is slow to import.
    from .registry import RegistryError, fetch_manifest_digest, find_login

    try:
        digest = fetch_manifest_digest(reference, logins=lambda host: find_login(host, environment=os.environ))
    except RegistryError as error:
        log_line(f"{reference}: {error}")
        return None
    host, name, _ = parse_reference(reference)
    return f"docker://{HUB if host == HUB_SERVER else host}/{name}@{digest}"


def _find_cached(reference: str, *, store: Store, why: str, hold: Callable[[str], None]) -> Path:
    """Return the cached copy of an image in a registry; raises LayeringError if there is none."""
    known = store.recall("known", compute_key(["reference", reference]))
    entry = None
    if isinstance(known, str):
        hold(known)
        entry = store.find("bases", known)
    if entry is None:
        raise LayeringError(f"the base image {reference} was not fetched before, and {why}", fix=FIX)
    if "@sha256:" not in reference:
        log_line(f"{why}: the image that {reference} was before is used")
    return entry.path


def _fetch(reference: str, target: Path, *, runtime: str, packer: Packer) -> None:
    """Unpack the image with the engine and pack it as layers are packed: with the same bytes on every machine."""
    log_line(f"base image {reference}")
    tree, part = target.with_name("base.tree"), target.with_name("base.part.sif")
    started = int(clock.time())
    try:
        argv = [runtime, "build", "--force", "--fix-perms", "--sandbox", str(tree), reference]
        with DownloadMeter("downloading the base image").count(dict):  # asking for its size counts as a pull
            failed = follow(argv, env=clean_environment(find_certificates(os.environ).variables))
        if failed:
            raise LayeringError(f"the base image '{reference}' could not be fetched", told=True)
        newest = normalize_times(tree, before=started)
        _normalize_labels(tree, time=newest)
        squashfs = target.with_name("base.sqfs")
        packer.pack([tree], squashfs, keep_modes=True, keep_times=newest, title="the base image")
        wrap_in_sif(squashfs, part, machine=os.uname().machine)
        # What the engine itself adds to an image that it packs: its answer to `inspect`.
        answer = call([runtime, "inspect", "--json", "--all", part], what=f"asking for the labels of '{reference}'")
        wrap_in_sif(squashfs, part, machine=os.uname().machine, inspect=answer.encode())
        squashfs.unlink()
    finally:
        remove(tree)
    part.rename(target)


def wrap_in_sif(squashfs: Path, target: Path, *, machine: str, inspect: bytes = b"") -> None:
    """Write a root file system as a SIF image; raises SifError for a machine that the format does not know."""
    sif = make_empty_sif(machine)
    with squashfs.open("rb") as source, target.open("w+b") as file:
        size = os.fstat(source.fileno()).st_size
        item = add_object(sif, size=size, extra=PARTITION.pack(SQUASHFS, SYSTEM, sif.arch))
        file.truncate(item.offset)
        if copy_range(source, file, start=0, size=size, to=item.offset) < size:
            raise SifError("its file system became shorter while it was read")
        if inspect:
            item = add_object(sif, size=len(inspect), kind=DATA_JSON, name=INSPECT)
            file.truncate(item.offset)
            file.seek(item.offset)
            file.write(inspect)
        file.truncate(-(-find_end(sif) // ALIGNMENT) * ALIGNMENT)
        write_header(file, sif, time=EPOCH)
    target.chmod(0o755)


def normalize_times(tree: Path, *, before: int) -> int:
    """Give everything newer than `before` the time of the newest thing that is older; return that time.

    The image's own files keep their times. Unpacking sets the time of day: on folders that no layer of the image names,
    and on what the engine adds.
    """
    newest = EPOCH
    top = int(tree.stat().st_mtime)
    for entry in walk(tree):
        noted = int(entry.stat().st_mtime)
        if noted < before:
            newest = max(newest, noted)
    if top < before:
        newest = max(newest, top)
    for entry in walk(tree):
        if int(entry.stat().st_mtime) >= before:
            entry.set_time(newest)
    if top >= before:
        os.utime(tree, (newest, newest))
    return newest


def _normalize_labels(tree: Path, *, time: int) -> None:
    """Remove the time of day from the engine's labels."""
    try:
        labels = json.loads(read(tree, LABELS, limit=LABELS_LIMIT))
        if DATE in labels:
            labels[DATE] = format_date(time)
        write(tree, LABELS, (json.dumps(labels, indent=1, sort_keys=True) + "\n").encode(), mode=0o644)
        for entry in walk(tree):
            entry.enter = entry.path == FOLDER_OF_LABELS
            if entry.path in (LABELS, FOLDER_OF_LABELS):
                entry.set_time(time)
    except (OSError, ValueError, TypeError, RecursionError):
        return
