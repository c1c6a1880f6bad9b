"""The shared cache: layers and what they are made of, named by the digest of their inputs.

    layers/KEY.sqfs, KEY.json    a layer; the second file, written last, holds its sha256 and says what is in it
    bases/KEY.sif, KEY.json      base images that came from a registry
    compiled/KEY.pycs, KEY.json  the .pyc files of one wheel
    facts/KEY.json               what is known of a base image, by its sha256
    known/KEY.json               the sha256 of a file, by the file's identity
    work/                        folders of builds that run, and of those that were killed

Several builds may use it at once: an entry is made beside its place, synced and renamed under a lock of its own, held
by whoever reads it, and removed only when nobody does.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .digest import sha256_of

KINDS = {"layers": ".sqfs", "bases": ".sif", "compiled": ".pycs"}
STORE = "layers-1"  # beside what was downloaded
LIMIT_GIB = 40.0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One file of the cache."""

    kind: str
    key: str
    path: Path
    sha256: str
    size: int
    title: str
    used: float = 0.0


def cache_folder(environment: Mapping[str, str]) -> Path:
    """RECIPE_CACHE_DIR, else `recipe` in the user's cache folder."""
    own = environment.get("RECIPE_CACHE_DIR")
    if own:
        return Path(own)
    return Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or "/tmp", ".cache"), "recipe")


def limit_bytes(environment: Mapping[str, str]) -> int:
    """RECIPE_CACHE_GIB, else 40 GiB."""
    try:
        gib = float(environment.get("RECIPE_CACHE_GIB") or LIMIT_GIB)
    except ValueError:
        gib = LIMIT_GIB
    return int(max(gib, 0.0) * 2**30)


def key_of(document: object) -> str:
    """The digest of a document's content."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sync(path: Path) -> None:
    """Have the disk hold what was written."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError:
        if path.is_file():
            raise
    finally:
        os.close(number)


def _identity(seen: os.stat_result) -> str:
    return key_of([seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns])


class Store:
    """The cache of one user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / STORE
        for name in (*KINDS, "facts", "known", "work", "locks"):
            (self.folder / name).mkdir(parents=True, exist_ok=True, mode=0o755)

    def path(self, kind: str, key: str) -> Path:
        """Where an entry lies."""
        return self.folder / kind / f"{key}{KINDS[kind]}"

    def look(self, kind: str, key: str) -> Entry | None:
        """An entry, when it is there and has the size that was written down."""
        path = self.path(kind, key)
        with suppress(OSError, ValueError, KeyError, TypeError):
            noted = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            used = path.with_suffix(".json").stat().st_mtime
            entry = Entry(
                kind=kind,
                key=key,
                path=path,
                sha256=str(noted["sha256"]),
                size=int(noted["size"]),
                title=str(noted["title"]),
                used=used,
            )
            if path.stat().st_size == entry.size:
                return entry
        return None

    def get(self, kind: str, key: str, *, title: str, make: Callable[[Path], None]) -> tuple[Entry, bool]:
        """An entry, made when it is missing: `make` writes the file that it is given. True where it was made now."""
        found = self.look(kind, key)
        if found is None:
            # Not the lock of who reads it: a build holds what it reads to its end, and may wait here for another one.
            with self.locked(f"make-{kind}-{key}"):
                found = self.look(kind, key)
                if found is None:
                    return self._make(kind, key, title=title, make=make), True
        with suppress(OSError):
            os.utime(found.path.with_suffix(".json"))
        return found, False

    def _make(self, kind: str, key: str, *, title: str, make: Callable[[Path], None]) -> Entry:
        from concurrent.futures import ThreadPoolExecutor  # who only looks into the cache starts sooner

        path = self.path(kind, key)
        with self.work(wait=False) as folder:
            part = folder / path.name
            make(part)
            part.chmod(0o644)
            with ThreadPoolExecutor(1) as beside:
                # What was compiled is small and checked when it is taken: one lost in a power cut is only made again.
                synced = beside.submit(sync, part) if kind != "compiled" else None
                size = part.stat().st_size
                noted = {"sha256": sha256_of(part), "size": size, "title": title}
                if synced:
                    synced.result()
            note = folder / f"{key}.json"
            note.write_text(json.dumps(noted, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            with self.held(kind, key):  # nobody removes half of it
                path.with_suffix(".json").unlink(missing_ok=True)
                part.replace(path)
                note.replace(path.with_suffix(".json"))
            if kind != "compiled":
                sync(path.parent)
        return Entry(kind=kind, key=key, path=path, title=title, sha256=str(noted["sha256"]), size=size)

    def intact(self, entry: Entry) -> bool:
        """Whether an entry is what it was when it was made; one that is not is removed."""
        if sha256_of(entry.path) == entry.sha256:
            return True
        self.drop(entry)
        return False

    def drop(self, entry: Entry) -> bool:
        """Remove an entry; False when somebody reads it."""
        with self._lock(f"{entry.kind}-{entry.key}", fcntl.LOCK_EX | fcntl.LOCK_NB) as ours:
            if ours:
                entry.path.with_suffix(".json").unlink(missing_ok=True)
                entry.path.unlink(missing_ok=True)
                (self.folder / "locks" / f"{entry.kind}-{entry.key}").unlink(missing_ok=True)
                for fact in (self.folder / "facts").glob(f"*{entry.sha256}.json"):
                    fact.unlink(missing_ok=True)
            return ours

    def entries(self) -> list[Entry]:
        """Every entry, the one used longest ago first."""
        found = [
            entry
            for kind in KINDS
            for path in (self.folder / kind).glob("*.json")
            if (entry := self.look(kind, path.stem)) is not None
        ]
        return sorted(found, key=lambda entry: (entry.used, entry.key))

    def broken(self) -> list[Path]:
        """Files of the cache that belong to no whole entry, and facts that are not whole."""
        whole = {entry.path for entry in self.entries()}
        return self.broken_facts() + [
            path
            for kind, suffix in KINDS.items()
            for path in sorted((self.folder / kind).iterdir())
            if path.with_suffix(suffix) not in whole
        ]

    def broken_facts(self) -> list[Path]:
        """Facts that are not whole, or of an earlier version, and drafts that a full disk or a kill has left."""
        facts = [path for kind in ("facts", "known") for path in sorted((self.folder / kind).iterdir())]
        return [path for path in facts if path.name.startswith(".") or _fact(path) is None]

    def prune(self, limit: int) -> list[Entry]:
        """Remove what was used longest ago until the rest fits; what is in use stays. Returns what was removed."""
        entries = self.entries()
        total, gone = sum(entry.size for entry in entries), []
        for entry in entries:
            if total <= limit:
                break
            if self.drop(entry):
                gone.append(entry)
                total -= entry.size
        return gone

    def remember(self, kind: str, key: str, document: object) -> None:
        """Keep a small fact with its digest, whole or not at all."""
        path = self.folder / kind / f"{key}.json"
        part = path.with_name(f".{path.name}.{os.getpid()}-{time.monotonic_ns()}")
        try:
            part.write_text(json.dumps({"digest": key_of(document), "fact": document}), encoding="utf-8")
            part.replace(path)
        except OSError:
            with suppress(OSError):
                part.unlink()

    def recall(self, kind: str, key: str) -> Any:
        """A fact that was kept, or None where there is none, or one that is not whole."""
        return _fact(self.folder / kind / f"{key}.json")

    def noted(self, path: Path) -> str | None:
        """SHA-256 of a file as it was noted, None where the file has changed since in any way that the system notes."""
        known = self.recall("known", _identity(path.stat()))
        return known if isinstance(known, str) else None

    def digest(self, path: Path) -> str:
        """SHA-256 of a file, computed only where it is not noted."""
        known = self.noted(path)
        if known is not None:
            return known
        seen = path.stat()
        found = sha256_of(path)
        # A file written a moment ago may change again within the clock's tick.
        if time.time_ns() - max(seen.st_mtime_ns, seen.st_ctime_ns) > 2 * 10**9:
            self.remember("known", _identity(seen), found)
        return found

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Alone with an entry that is being made."""
        with self._lock(name, fcntl.LOCK_EX):
            try:
                yield
            finally:
                (self.folder / "locks" / name).unlink(missing_ok=True)

    @contextmanager
    def held(self, kind: str, key: str) -> Iterator[None]:
        """While an entry is read nobody removes it."""
        with self._lock(f"{kind}-{key}", fcntl.LOCK_SH):
            yield

    @contextmanager
    def downloads(self, *, alone: bool = False) -> Iterator[bool]:
        """While a build reads what was downloaded nobody removes it; with `alone` false where one does."""
        with self._lock("downloads", fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH) as ours:
            yield ours

    @contextmanager
    def _lock(self, name: str, how: int) -> Iterator[bool]:
        path = self.folder / "locks" / name
        while True:
            with path.open("a") as file:
                try:
                    fcntl.flock(file, how)
                except BlockingIOError:
                    yield False
                    return
                except OSError:
                    pass  # a file system without locks: renames still keep entries whole
                try:
                    same = path.stat().st_ino == os.fstat(file.fileno()).st_ino
                except FileNotFoundError:
                    same = False  # whoever had it has removed it
                if same:
                    yield True
                    return

    @contextmanager
    def work(self, *, wait: bool = True) -> Iterator[Path]:
        """A folder for a build, removed at its end; it lies in the cache, so that files are linked, not copied.

        Without `wait` it is removed beside what follows, before the program ends.
        """
        folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.folder / "work"))
        folder.chmod(0o755)
        alive = folder.with_name(f"{folder.name}.alive")
        with alive.open("w") as file:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield folder
            except BaseException:
                wait = True  # perhaps the disk is full
                raise
            finally:
                thread = threading.Thread(target=_clear, args=(folder, alive))
                thread.start()
                if wait:
                    thread.join()

    def sweep(self) -> None:
        """Remove the folders of builds that were killed."""
        for alive in (self.folder / "work").glob("*.alive"):
            with suppress(OSError), alive.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _clear(alive.with_suffix(""), alive)


def _fact(path: Path) -> Any:
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["digest"] == key_of(found["fact"]):
            return found["fact"]
    return None


def _clear(folder: Path, alive: Path) -> None:
    remove(folder)
    alive.unlink(missing_ok=True)


def remove(folder: Path) -> None:
    """Remove a folder, also one whose folders were made unwritable."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for root, names, _ in os.walk(folder):
            for name in names:
                with suppress(OSError):
                    Path(root, name).chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)
