"""Another user's cache, named by RECIPE_CACHE_SHARED: entries are copied from it, nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..sif.digest import hash_file
from ..sif.errors import log_line
from .private_folders import OTHERS, PrivateError, format_owner

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
