"""SHA-256 of files; sif/digest.py computes it."""

from __future__ import annotations

import threading
from io import FileIO
from pathlib import Path

from builder.sif.bounded import open_regular
from builder.sif.digest import hash_file, hash_file_part, hash_open_file

__all__ = ["Digest", "hash_file", "hash_file_part"]


class Digest:
    """The SHA-256 of an image, computed in the background; a folder has none."""

    def __init__(self, image: Path) -> None:
        self._made: str | None = None
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None
        try:
            # Opened now: its name is about to change.
            file = None if image.is_dir() else FileIO(open_regular(image))
        except OSError as error:
            self._error = error
            return
        if file is not None:
            # A daemon: a build that is stopped does not wait for it.
            self._thread = threading.Thread(target=self._make, args=(file,), daemon=True)
            self._thread.start()

    def wait(self) -> str | None:
        """Wait for the result; raises OSError if the image cannot be read."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made

    def _make(self, file: FileIO) -> None:
        try:
            with file:
                self._made = hash_open_file(file)
        except OSError as error:
            self._error = error
