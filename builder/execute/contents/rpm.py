"""The package database of rpm, where it is one of SQLite (Fedora 33, RHEL 9 and newer)."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator

from builder.execute.contents.packages import word
from builder.execute.scratch import work_folder
from builder.model.contents import Package

# https://rpm-software-management.github.io/rpm/manual/tags.html
NAME, VERSION, RELEASE, EPOCH, LICENSE, ARCH = 1000, 1001, 1002, 1003, 1014, 1022
STEPS = 50_000_000  # of SQLite's machine; 2000 packages take 10 000
MOST = 20_000  # packages


def rpm_packages(database: bytes | bytearray) -> tuple[Package, ...] | None:
    """Return the packages of a database, None where it cannot be read."""
    with work_folder("recipe-") as folder:
        path = folder / "rpmdb.sqlite"
        path.write_bytes(database)
        try:
            connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        except sqlite3.Error:
            return None
        try:
            # A faulty file may ask for endless work.
            steps = iter(range(STEPS // 100_000))
            connection.set_progress_handler(lambda: next(steps, -1) < 0, 100_000)
            rows = connection.execute("SELECT blob FROM Packages LIMIT ?", (MOST,))
            return tuple(found for (blob,) in rows if isinstance(blob, bytes) and (found := _package(blob)))
        except sqlite3.Error:
            return None
        finally:
            connection.close()


def _package(blob: bytes) -> Package | None:
    fields = dict(_fields(blob))
    name, version, epoch = fields.get(NAME, ""), fields.get(VERSION, ""), fields.get(EPOCH, "")
    if not name or name == "gpg-pubkey":
        return None
    full = f"{epoch}:" if epoch else ""
    full += f"{version}-{fields.get(RELEASE, '')}".rstrip("-")
    arch, words = word(fields.get(ARCH, "")), word(fields.get(LICENSE, ""))
    return Package(kind="rpm", name=word(name), version=word(full), arch=arch, license=words)


def _fields(blob: bytes) -> Iterator[tuple[int, str]]:
    """Texts and numbers of a header: an index of 16 bytes an entry, then the data."""
    if len(blob) < 8:
        return
    count, size = struct.unpack_from(">II", blob)
    start = 8 + 16 * count
    if count > 10_000 or start + size > len(blob):
        return
    for at in range(8, start, 16):
        tag, kind, offset, _ = struct.unpack_from(">IIiI", blob, at)
        if not 0 <= offset < size:
            continue
        if kind in (6, 9):  # a string; a string in several languages, of which the first is plain
            end = blob.find(b"\0", start + offset, start + offset + 1000)
            yield tag, blob[start + offset : end if end >= 0 else start + offset].decode("utf-8", errors="replace")
        elif kind == 4 and offset + 4 <= size:
            yield tag, str(struct.unpack_from(">I", blob, start + offset)[0])
