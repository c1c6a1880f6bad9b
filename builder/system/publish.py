"""Move the image from the plan folder to its output path, atomically; its SHA-256 is computed in the background."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import FileIO
from pathlib import Path

from builder.layers import copies
from builder.sif import tree
from builder.sif.bounded import hash_open_file, open_regular
from builder.system.files import make_temporary_path, name_draft, remove_tree, rename_new, sync


def publish(
    image: Path,
    output: Path,
    *,
    new: bool = False,
    undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Move an image to its place and replace it by a link, so that the plan's scripts still find it; raises OSError.

    In one file system it is renamed, else copied to the folder of its place, synced and renamed. `undisturbed` guards
    the moment in which the new output replaces the old one. A `new` output replaces nothing: raises FileExistsError.
    """
    source = image.resolve(strict=True)
    if output.exists() and source.samefile(output):
        return
    _sync(source)
    try:
        with undisturbed():
            _take_place(source, output, new=new)
            _link(image, output)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        draft = name_draft(output)
        with make_temporary_path(draft):
            _copy(source, draft)
            _sync(draft)
            with undisturbed():
                _take_place(draft, output, new=new)
                remove_tree(source)
                _link(image, output)


def _link(image: Path, output: Path) -> None:
    sync(output.parent)
    with suppress(OSError):
        image.unlink(missing_ok=True)
        image.symlink_to(os.path.relpath(output, image.parent))


def _copy(source: Path, draft: Path) -> None:
    copies.copy(source, draft.parent.resolve(), draft.name)


def _sync(path: Path) -> None:
    if path.is_dir():
        for entry in tree.walk(path):
            if entry.kind == tree.FILE:
                with suppress(OSError):
                    entry.sync()
    sync(path)


def _take_place(draft: Path, output: Path, *, new: bool) -> None:
    if new:
        rename_new(draft, output)
        return
    if not output.is_dir():
        with _release_in_background(output):
            draft.replace(output)
        return
    old = output.with_name(f"{draft.name}.old")
    output.rename(old)
    try:
        draft.rename(output)
    except BaseException:
        old.rename(output)
        raise
    remove_tree(old)


@contextmanager
def _release_in_background(old: Path) -> Iterator[None]:
    """Free the space of a replaced file in the background: for a large one that takes the kernel a while."""
    try:
        file = os.open(old, tree.READ)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        threading.Thread(target=os.close, args=(file,), daemon=True).start()


def measure_image(image: Path) -> int:
    """Return the bytes of an image, a file or a folder; raises OSError."""
    if image.is_dir():
        return sum(entry.stat().st_size for entry in tree.walk(image.resolve()) if entry.kind != tree.FOLDER)
    return image.stat().st_size


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
