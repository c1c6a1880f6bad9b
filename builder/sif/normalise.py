"""Normalises an image that an engine made: one time, no random id, no date of the build.

What an engine leaves to chance in a SIF, seen on Apptainer 1.4.5: an id and times in the header, the date of the build
in a label (in a file of the root file system and in the object that `inspect` reads), the id of the image that Docker
made in the object of its configuration. Times of files are fixed by mksquashfs, which heeds SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import json
import time as clock
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from .bounded import open_file, parse_json
from .errors import LayeringError
from .programs import find_system_program, read_program_version
from .sif import ALIGNMENT, DATA_JSON, INSPECT, Object, Sif, SifError, copy_range, read_object, read_sif, write_header

EPOCH = 315532800  # 1980-01-01, the oldest time that every archive format can hold
DATE = "org.label-schema.build-date"
OCI_CONFIG = "oci-config.json"
FIRST = "USER 0"  # our Dockerfile's first line after FROM, in the history of an image
OLDEST = (4, 4)  # mksquashfs: the first that heeds SOURCE_DATE_EPOCH


def choose_time(base: str, *, environment: Mapping[str, str]) -> int | None:
    """The time for the files of a build, None where it cannot be set; the same for every build on the same base.

    No file of the base may be older than a .pyc that was made from it says: what is in the base has its own times,
    what is newer than the base gets the base's.
    """
    program = find_system_program("mksquashfs")
    if program is None or read_program_version(program, "-version") < OLDEST:
        return None
    own = environment.get("SOURCE_DATE_EPOCH") or ""
    if own:
        return int(own) if own.isdecimal() else None
    path = Path(base)
    if base.endswith(".tar"):
        found = find_newest_base_time(path)
        return found if found is not None and found < clock.time() else None
    if path.is_file():
        try:
            found = read_sif(path).modified
        except (SifError, OSError):
            return None
        return found if EPOCH <= found < clock.time() else EPOCH
    return EPOCH


def find_newest_base_time(archive: Path) -> int | None:
    """The newest time of a file in the base's layers of what `docker save` wrote; None where they are not known."""
    from .archive import (  # an image without an archive starts sooner
        Bounds,
        FileStream,
        read_image_config,
        read_members,
    )

    try:
        manifest, config = read_image_config(archive)
        history = config.get("history", [])
        last = max(row for row, step in enumerate(history) if step.get("created_by", "").endswith(FIRST))
        count = sum(not step.get("empty_layer") for step in history[:last])
        names = set(manifest["Layers"][:count])
        newest = 0
        with open_file(archive) as file:
            for member, content in read_members(FileStream(file, Bounds())):
                if member.regular and member.name in names:
                    names.discard(member.name)
                    newest = max([newest, *(inner.time for inner, _ in read_members(content))])
        return newest if count and not names else None
    except (OSError, LookupError, ValueError, TypeError, AttributeError):
        return None


def make_labels_json(archive: Path, *, time: int) -> bytes:
    """labels.json of a converted image: the labels of the Docker image, and our date."""
    from .archive import read_image_config

    try:
        found = dict(read_image_config(archive)[1]["config"].get("Labels") or {})
    except (OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise LayeringError(f"'{archive}' is not what `docker save` writes: {error}") from None
    labels = {**found, "org.label-schema.schema-version": "1.0", DATE: format_date(time)}
    return (json.dumps(labels, indent=1, sort_keys=True) + "\n").encode()


def format_date(time: int) -> str:
    """A time as labels write it."""
    return clock.strftime("%Y-%m-%dT%H:%M:%SZ", clock.gmtime(time))


def normalize_image(path: Path, *, time: int) -> None:
    """Rewrite the header and the objects that hold a date or an id; raises LayeringError and OSError.

    The root file system stays where it is but for the rare case that the shorter or longer objects before it end on
    another page: then the image is rewritten.
    """
    try:
        sif = read_sif(path)
        changed = {item.number: _normalize_object(path, item, time=time) for item in _list_json_objects(sif)}
    except SifError as error:
        raise LayeringError(f"'{path}' cannot be normalised: {error}") from None
    before = [(item.offset, item.size) for item in sif.objects]
    _place_objects(sif, changed)
    if all(item.offset == offset for item, (offset, _) in zip(sif.objects, before, strict=True) if item.partition):
        with path.open("r+b") as file:
            _write(file, sif, _read_contents(path, sif, before, changed), time=time)
        return
    draft = path.with_name(f"{path.name}.settled.part")
    with path.open("rb") as source, draft.open("w+b") as file:
        for item, (offset, size) in zip(sif.objects, before, strict=True):
            if item.partition:
                file.truncate(item.offset + size)
                if copy_range(source, file, start=offset, size=size, to=item.offset) < size:
                    raise LayeringError("the image became shorter while it was read")
        _write(file, sif, _read_contents(path, sif, before, changed), time=time)
    draft.chmod(path.stat().st_mode & 0o777)
    draft.replace(path)


def _list_json_objects(sif: Sif) -> list[Object]:
    return [item for item in sif.objects if item.kind == DATA_JSON and item.label in (INSPECT, OCI_CONFIG)]


def _normalize_object(path: Path, item: Object, *, time: int) -> bytes:
    content = read_object(path, item)
    try:
        document = parse_json(content)
        if item.label == OCI_CONFIG:
            document.pop("Image", None)
        else:
            document["data"]["attributes"]["labels"][DATE] = format_date(time)
    except (ValueError, LookupError, TypeError, AttributeError):
        return content
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _place_objects(sif: Sif, changed: Mapping[int, bytes]) -> None:
    """Set the offset of every object: one after the other, partitions at the beginning of a page."""
    end = sif.data
    for item in sif.objects:
        start = -(-end // ALIGNMENT) * ALIGNMENT if item.partition else end
        item.size = len(changed[item.number]) if item.number in changed else item.size
        item.offset, item.padded = start, start - end + item.size
        end = start + item.size


def _read_contents(
    path: Path, sif: Sif, places: Sequence[tuple[int, int]], changed: Mapping[int, bytes]
) -> list[bytes | None]:
    """The new contents of all objects, None for partitions."""
    found: list[bytes | None] = []
    with path.open("rb") as file:
        for item, (offset, size) in zip(sif.objects, places, strict=True):
            if item.partition:
                found.append(None)
                continue
            file.seek(offset)
            found.append(changed.get(item.number) or file.read(size))
    return found


def _write(file: BinaryIO, sif: Sif, contents: Sequence[bytes | None], *, time: int) -> None:
    """Write the objects, the gaps between them, and the header."""
    end = sif.data
    for item, content in zip(sif.objects, contents, strict=True):
        file.seek(end)
        file.write(bytes(item.offset - end))
        if content is not None:
            file.write(content)
        end = item.offset + item.size
    file.truncate(-(-end // ALIGNMENT) * ALIGNMENT)
    write_header(file, sif, time=time)
