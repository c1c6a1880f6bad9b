"""The shared cache: layers and what they are made of, named by the digest of their inputs.

    layers/KEY.sqfs, KEY.json    a layer; the second file, written last, has its sha256 and describes its content
    bases/KEY.sif, KEY.json      base images from a registry
    compiled/KEY.pycs, KEY.json  the .pyc files of one package
    facts/KEY.json               facts about a base image, by its sha256
    known/KEY.json               the sha256 of a file, by the file's identity
    work/                        work folders of running builds, and of builds that were killed
    locks/                       locks, and marks of readers

Only its owner can write it. Several builds may use it at once, on several machines: an entry is written to a work
folder, synced, and renamed under a lock of its own; its readers mark it, and it is removed only without a mark.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..sif.bounded import hash_file, read_json
from ..sif.errors import log_line
from ..sif.removal import remove
from ..sif.tree import sync
from .locks import Locks, is_dead, is_mark, make_mark
from .private_folders import LAYERS, OTHERS, PrivateError, ensure_cache, ensure_cache_part, format_owner

FIX = "set RECIPE_CACHE_SHARED to a cache that only its owner can write, or to nothing"


class SharedCache:
    """A cache that is only read; the owner of its folder is trusted, and no one else."""

    def __init__(self, folder: Path) -> None:
        """Raises PrivateError if others than its owner and root can change its path, and OSError."""
        self.folder = Path(os.path.realpath(folder))
        self.owners = {0, os.stat("/").st_uid, self.folder.stat().st_uid}
        for above in self.folder.parents:
            seen = above.stat()
            loose = seen.st_mode & stat.S_IWOTH and not seen.st_mode & stat.S_ISVTX
            if loose or seen.st_uid not in {*self.owners, os.getuid()}:
                raise self._make_error(above, seen)
        self._check(self.folder)

    def copy(self, part: str, target: Path) -> bool:
        """Copy an entry by the name of `target` out of a part; return False if it is missing or altered.

        Raises PrivateError for one that others than the owner can write.
        """
        source = self.folder / part / target.name
        note = source.with_suffix(".json")
        with suppress(FileNotFoundError, PermissionError, NotADirectoryError, ValueError, KeyError, TypeError):
            for path in (*reversed(source.relative_to(self.folder).parents), source, note):
                self._check(self.folder / path)
            recorded = json.loads(note.read_text(encoding="utf-8"))["sha256"]
            shutil.copyfile(source, target)
            if hash_file(target) == recorded:
                log_line(f"{target.stem[:12]}: from the shared cache")
                return True
        target.unlink(missing_ok=True)
        return False

    def _check(self, path: Path) -> None:
        seen = path.lstat()
        if seen.st_uid not in self.owners or seen.st_mode & OTHERS or stat.S_ISLNK(seen.st_mode):
            raise self._make_error(path, seen)

    def _make_error(self, path: Path, seen: os.stat_result) -> PrivateError:
        who = (
            f"belongs to {format_owner(seen.st_uid)}" if seen.st_uid not in self.owners else "can be changed by others"
        )
        return PrivateError(path, f"the shared cache '{self.folder}' is not safe: '{path}' {who}", fix=FIX)


def open_shared_cache(environment: Mapping[str, str]) -> SharedCache | None:
    """Return RECIPE_CACHE_SHARED, None if it is not set; raises what SharedCache raises."""
    named = environment.get("RECIPE_CACHE_SHARED")
    return SharedCache(Path(named)) if named else None


REMOVER = "remove a work folder"  # name of the threads that do it in the background
KINDS = {"layers": ".sqfs", "bases": ".sif", "compiled": ".pycs"}
FACTS = ("facts", "known")
# The names that are given here; what has another one is somebody's own file, which is never removed.
_KEY = "[0-9a-f]{64}"
_FACT = re.compile(rf"(?:conda-\d+-)?{_KEY}\.json|\..+\.json\.\d+-\d+")


@dataclass(frozen=True, kw_only=True)
class CacheEntry:
    """One file of the cache; `used` in seconds since 1970."""

    kind: str
    key: str
    path: Path
    sha256: str
    size: int
    title: str
    used: float = 0.0


def compute_key(document: object) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _compute_identity(seen: os.stat_result) -> str:
    return compute_key([seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns])


class Store:
    """The cache of one user."""

    def __init__(self, folder: Path, *, shared: SharedCache | None = None) -> None:
        """Make or check its folders; entries are copied from `shared`. Raises what `ensure_cache` raises."""
        self.shared = shared
        self.folder = ensure_cache_part(ensure_cache(folder) / LAYERS)
        for name in (*KINDS, *FACTS, "work", "locks"):
            ensure_cache_part(self.folder / name)
        self.locks = Locks(self.folder / "locks")
        self._altered = set[Path]()

    def get_path(self, kind: str, key: str) -> Path:
        return self.folder / kind / f"{key}{KINDS[kind]}"

    def find(self, kind: str, key: str) -> CacheEntry | None:
        """Return an entry if it is there and has the recorded size, else None."""
        path = self.get_path(kind, key)
        with suppress(OSError, ValueError, KeyError, TypeError):
            noted = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            used = path.with_suffix(".json").stat().st_mtime
            entry = CacheEntry(
                kind=kind,
                key=key,
                path=path,
                sha256=str(noted["sha256"]),
                size=int(noted["size"]),
                title=str(noted["title"]),
                used=used,
            )
            if path.stat().st_size == entry.size and path not in self._altered:
                return entry
        return None

    def get(self, kind: str, key: str, *, title: str, make: Callable[[Path], None]) -> tuple[CacheEntry, bool]:
        """Return an entry, and True if it was made now: `make` writes the file that it is given."""
        found = self.find(kind, key)
        if found is None:
            with self.locks.lock(f"make-{kind}-{key}"):
                found = self.find(kind, key)
                if found is None:
                    return self._make(kind, key, title=title, make=make), True
        with suppress(OSError):
            os.utime(found.path.with_suffix(".json"))
        return found, False

    def _make(self, kind: str, key: str, *, title: str, make: Callable[[Path], None]) -> CacheEntry:
        from concurrent.futures import ThreadPoolExecutor  # not needed to read the cache

        path = self.get_path(kind, key)
        with self.work_folder(wait=False) as folder:
            part = folder / path.name
            if not (self.shared and self.shared.copy(f"{LAYERS}/{kind}", part)):
                make(part)
            part.chmod(0o644)
            with ThreadPoolExecutor(1) as pool:
                # .pyc files are small and checked when they are read: one lost in a power cut is made again.
                synced = pool.submit(sync, part) if kind != "compiled" else None
                size = part.stat().st_size
                noted = {"sha256": hash_file(part), "size": size, "title": title}
                if synced:
                    synced.result()
            note = folder / f"{key}.json"
            note.write_text(json.dumps(noted, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            # Both files are replaced together.
            with self.keep(kind, key), self.locks.lock(f"{kind}-{key}"):
                path.with_suffix(".json").unlink(missing_ok=True)
                part.replace(path)
                note.replace(path.with_suffix(".json"))
            self._altered.discard(path)
            if kind != "compiled":
                sync(path.parent)
        return CacheEntry(kind=kind, key=key, path=path, title=title, sha256=str(noted["sha256"]), size=size)

    def check(self, entry: CacheEntry) -> bool:
        """Compare an entry with its sha256; remove it and return False if it differs."""
        if hash_file(entry.path) == entry.sha256:
            return True
        self.forget(entry)
        return False

    def forget(self, entry: CacheEntry) -> None:
        """Treat an altered entry as missing: remove it, or make it again while others still read it."""
        self._altered.add(entry.path)
        self.drop(entry)

    def drop(self, entry: CacheEntry) -> bool:
        """Remove an entry; return False while it is read, on any machine, and without locks."""
        name, note = f"{entry.kind}-{entry.key}", entry.path.with_suffix(".json")
        with self.locks.try_lock(name) as ours:
            if not ours:
                return False
            # From here on it is not found. A reader that marked it before may have found it, and keeps it.
            gone = entry.path.with_suffix(".gone")
            with suppress(FileNotFoundError):
                note.replace(gone)
            if self.locks.is_used(name):
                with suppress(OSError):
                    os.link(gone, note)
                gone.unlink(missing_ok=True)
                return False
            entry.path.unlink(missing_ok=True)
            gone.unlink(missing_ok=True)
            for fact in (self.folder / "facts").glob(f"*{entry.sha256}.json"):
                fact.unlink(missing_ok=True)
            return True

    def is_free(self, entry: CacheEntry) -> bool:
        """Whether `drop` would remove an entry now."""
        with self.locks.try_lock(f"{entry.kind}-{entry.key}") as ours:
            return ours

    def drop_stray(self, path: Path) -> bool:
        """Remove a file that belongs to no entry; return False if it may belong to one that is made now."""
        with self.locks.try_lock(f"{path.parent.name}-{path.stem}") as ours:
            if not ours or self.find(path.parent.name, path.stem) is not None:
                return False
            path.unlink(missing_ok=True)
            return True

    def list_entries(self) -> list[CacheEntry]:
        """Return every entry, the least recently used first."""
        found = [
            entry
            for kind in KINDS
            for path in (self.folder / kind).glob("*.json")
            if (entry := self.find(kind, path.stem)) is not None
        ]
        return sorted(found, key=lambda entry: (entry.used, entry.key))

    def find_broken(self) -> list[Path]:
        """Return files that belong to no entry, and damaged facts."""
        whole = {entry.path for entry in self.list_entries()}
        return self.find_broken_facts() + [
            path
            for kind, suffix in KINDS.items()
            for path in sorted((self.folder / kind).iterdir())
            if path.with_suffix(suffix) not in whole and _is_own(path, kind)
        ]

    def find_broken_facts(self) -> list[Path]:
        """Return facts that are damaged or of an earlier version, and drafts of processes that were killed."""
        facts = [path for kind in FACTS for path in sorted((self.folder / kind).iterdir()) if _is_own(path, kind)]
        return [path for path in facts if path.name.startswith(".") or _read_fact(path) is None]

    def find_foreign(self) -> list[Path]:
        """Return files that have no name of ours: they are somebody's own, and are never removed."""
        entries = {path for entry in self.list_entries() for path in (entry.path, entry.path.with_suffix(".json"))}
        parts = (*KINDS, *FACTS, "work")
        found = [
            path
            for part in parts
            for path in (self.folder / part).iterdir()
            if path not in entries and not _is_own(path, part)
        ]
        return sorted(found + [path for path in self.folder.iterdir() if path.name not in (*parts, "locks")])

    def prune(self, limit: int, *, dry_run: bool = False) -> list[CacheEntry]:
        """Remove the least recently used entries until the rest fits; those in use stay. Return what was removed.

        With `dry_run` return what would be removed now, and remove nothing.
        """
        entries = self.list_entries()
        total, gone = sum(entry.size for entry in entries), []
        for entry in entries:
            if total <= limit:
                break
            if self.is_free(entry) if dry_run else self.drop(entry):
                gone.append(entry)
                total -= entry.size
        return gone

    def remember(self, kind: str, key: str, document: object) -> None:
        """Store a small fact with its digest, atomically."""
        path = self.folder / kind / f"{key}.json"
        part = path.with_name(f".{path.name}.{os.getpid()}-{time.monotonic_ns()}")
        try:
            part.write_text(json.dumps({"digest": compute_key(document), "fact": document}), encoding="utf-8")
            if kind == "facts":  # a digest lost in a power cut is computed again
                sync(part)
            part.replace(path)
        except OSError:
            with suppress(OSError):
                part.unlink()

    def recall(self, kind: str, key: str) -> Any:
        """Return a stored fact, None if it is missing or damaged."""
        return _read_fact(self.folder / kind / f"{key}.json")

    def recall_digest(self, path: Path) -> str | None:
        """Return the recorded SHA-256 of a file, None if the file has changed since."""
        known = self.recall("known", _compute_identity(path.stat()))
        return known if isinstance(known, str) else None

    def find_digest(self, path: Path) -> str:
        """Return the SHA-256 of a file, computed only if it is not recorded."""
        known = self.recall_digest(path)
        if known is not None:
            return known
        seen = path.stat()
        found = hash_file(path)
        # A file written a moment ago may change again within one tick of the clock.
        if time.time_ns() - max(seen.st_mtime_ns, seen.st_ctime_ns) > 2 * 10**9:
            self.remember("known", _compute_identity(seen), found)
        return found

    @contextmanager
    def keep(self, kind: str, key: str) -> Iterator[None]:
        """Prevent the removal of an entry; call `find` inside."""
        with self.locks.mark(f"{kind}-{key}"):
            yield

    @contextmanager
    def lock_downloads(self, *, alone: bool = False) -> Iterator[bool]:
        """Prevent the removal of downloads while a build reads them; with `alone` yield False if one does."""
        if alone:
            with self.locks.try_lock("downloads") as ours:
                yield ours
            return
        with self.locks.mark("downloads"):
            with self.locks.lock("downloads"):
                pass  # a process that removes them now has not seen the mark
            yield True

    @contextmanager
    def work_folder(self, *, wait: bool = True) -> Iterator[Path]:
        """Make a work folder, removed at the end; it is in the cache, so that files are linked and not copied.

        Its name is the mark of this process. Without `wait` it is removed in the background, before the program ends.
        """
        folder = self.folder / "work" / make_mark()
        folder.mkdir(0o700)
        try:
            yield folder
        except BaseException:
            wait = True  # the disk may be full
            raise
        finally:
            thread = threading.Thread(target=remove, args=(folder,), name=REMOVER)
            thread.start()
            if wait:
                thread.join()

    def sweep(self) -> None:
        """Remove work folders of builds that were killed: of this machine at once, of others when they are old."""
        with self.locks.try_lock("sweep") as ours:
            if ours:
                self.locks.sweep()
                for left in (self.folder / "work").iterdir():
                    if is_mark(left.name) and is_dead(left):
                        remove(left)


def _is_own(path: Path, part: str) -> bool:
    """Whether a file in a part of the cache has a name of ours."""
    if part == "work":
        return is_mark(path.name)
    if path.is_dir() and not path.is_symlink():
        return False
    return bool(re.fullmatch(rf"{_KEY}\.(?:json|gone|{KINDS[part][1:]})" if part in KINDS else _FACT, path.name))


def _read_fact(path: Path) -> Any:
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = read_json(path)
        if found["digest"] == compute_key(found["fact"]):
            return found["fact"]
    return None
