"""What is inside a new image: its bill of materials, found during the smoke test, and put into the SIF after it."""

from __future__ import annotations

import os
import threading
from importlib import import_module
from io import FileIO
from pathlib import Path

from builder.inspect.attestations import make_sbom
from builder.inspect.image import read_contents
from builder.inspect.sif_objects import SBOM, SIGNATURE, plan_object_writes
from builder.model.finding import BuilderError
from builder.model.plan import Plan
from builder.sif.bounded import hash_file
from builder.sif.sif import SifError, parse_sif

NAME = "sbom.cdx.json"  # of the object in the SIF
FORMAT = (1).to_bytes(4, "little")  # CycloneDX in JSON, as sif names it
PAGE = 64 * 1024  # bytes
Changes = tuple[tuple[int, bytes], ...]  # offset in the file, bytes


class SbomTask:
    """The bill of materials of an image and the SHA-256 that the image will have with it inside.

    The digest is of what the file is going to be, so that nothing is left to do after the smoke test but to write a
    few kilobytes. A folder has no digest; an image that has a bill or a signature, or no room, is left as it is.
    """

    def __init__(
        self,
        image: Path,
        *,
        name: str,
        tool: str,
        plan: str = "",
        put: bool = True,
        named: bool = True,
    ) -> None:
        """Begin; an image that is not `named` is about to get its name, which may be any.

        `plan` is the digest of the plan, which the bill carries into the image.
        """
        self.text = ""
        self.unknown = ""  # why there is no bill
        self._image, self._name, self._tool = image, name, tool
        self._put, self._plan = put, plan
        self._file = None if named else _open(image)
        if self._file is not None:
            # For programs that are asked too; ours as long as it is open.
            self._image = Path(f"/proc/{os.getpid()}/fd/{self._file.fileno()}")
            self._seen = _read_identity(os.fstat(self._file.fileno()))
        self._changes: Changes = ()
        self._sha256: str | None = None
        self._error: OSError | None = None
        # A daemon thread: a build that is stopped does not wait for it.
        self._thread = threading.Thread(target=self._find, daemon=True)
        self._thread.start()

    def matches(self, image: Path) -> bool:
        """Say whether what was looked into got this name, and was not written to since."""
        if self._file is None or _read_identity(image.lstat()) != self._seen:
            return False
        self._named = image
        return True

    def drop(self) -> None:
        """End it: what was looked into is not the image."""
        self._thread.join()
        if self._file is not None:
            self._file.close()

    def finish(self) -> str | None:
        """Wait for both, put the bill into the SIF and return the image's SHA-256; raises OSError."""
        self._thread.join()
        if self._file is not None:
            self._file.close()
            self._image = self._named
        if self._error is not None:
            raise self._error
        if self._changes:
            try:
                _write(self._image, self._changes)
            except OSError as error:
                self.unknown = f"it could not be put into the image: {(error.strerror or str(error)).lower()}"
                self._sha256 = hash_file(self._image)
            self._changes = ()
        return self._sha256

    def _find(self) -> None:
        try:
            contents = read_contents(self._image)
            self.text = make_sbom(contents, name=self._name, tool=self._tool, plan=self._plan)
        except BuilderError as error:
            self.unknown = error.findings[0].message
        except Exception as error:
            # What is in an image never stops a build.
            self.unknown = f"the image could not be read: {type(error).__name__}"
        try:
            if not self._image.is_dir():
                self._changes = self._make_changes() if self.text and self._put else ()
                self._sha256 = hash_file(self._image, changes=self._changes)
        except OSError as error:
            self._error = error

    def _make_changes(self) -> Changes:
        """Where the bill goes, nowhere if the image is no SIF that has room for it."""
        size = self._image.stat().st_size
        with self._image.open("rb") as file:
            try:
                sif = parse_sif(file, size=size)
            except SifError:
                return ()
            end = sif.data + sif.data_size
            file.seek(end)
            # What follows the data can only be what fills a page up.
            if not 0 <= size - end < PAGE or any(file.read(PAGE)):
                return ()
        if any(item.kind in (SBOM, SIGNATURE) for item in sif.objects):
            return ()
        return plan_object_writes(sif, kind=SBOM, name=NAME, content=self.text.encode(), extra=FORMAT)


def _open(image: Path) -> FileIO | None:
    """The image by a number of ours, which renaming does not change; None where the system has no such paths."""
    try:
        file = image.open("rb", buffering=0)
    except OSError:
        return None
    if not Path(f"/proc/{os.getpid()}/fd/{file.fileno()}").exists():
        file.close()
        return None
    return file


def _read_identity(found: os.stat_result) -> tuple[int, ...]:
    """What changes with a file's content; its times are of one clock here."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _write(image: Path, changes: Changes) -> None:
    """Write the content first: an image whose header does not know of it yet is whole."""
    with image.open("r+b", buffering=0) as file:
        for number, (offset, data) in enumerate(changes):
            file.seek(offset)
            if file.write(data) != len(data):
                raise OSError("the disk is full")
            if number == 0:
                os.fsync(file.fileno())


BEGINNING = 0.5  # seconds; in them the step itself needs the processor more


class BackgroundScan:
    """Looks inside the image of a plan: as soon as its step reports that it is whole, else when it is needed."""

    def __init__(self, plan: Plan, *, folder: Path, digest: str) -> None:
        self._digest = digest
        self._plan, self._folder = plan, folder
        self._begun: SbomTask | None = None
        modules = threading.Timer(BEGINNING, import_module, args=("builder.execute.image_scan",))
        modules.daemon = True
        modules.start()

    def note_whole_image(self, image: str) -> None:
        """An image without its name yet is whole; that of the plan begins it."""
        if self._begun is None and image == f"{self._plan.image}.part":
            self._begun = self._start_scan(self._folder / f"{self._plan.image}.part", named=False)

    def take_scan(self, *, put: bool) -> SbomTask:
        """The look inside; without `put` the image stays as it is."""
        image = self._folder / self._plan.image
        begun, self._begun = self._begun, None
        if begun is not None:
            if put and begun.matches(image):
                return begun
            begun.drop()
        return self._start_scan(image, put=put)

    def _start_scan(self, image: Path, *, put: bool = True, named: bool = True) -> SbomTask:

        plan = self._plan
        return SbomTask(
            image, name=plan.target, tool=plan.tool, plan=self._digest, put=put, named=named,
        )  # fmt: skip
