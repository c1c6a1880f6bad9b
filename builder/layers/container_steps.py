"""Steps that need a container: distribution packages, packages from sources, the recipe's own commands.

They run in the image as it is so far, with an overlay folder; the folder becomes a layer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..sif import removal, tree
from ..sif.errors import LayeringError
from ..sif.pack import escape_path
from ..sif.programs import call, follow
from ..sif.reader import Reader
from ..sif.sif import SifError, read_sif
from ..sif.squashfs import SquashfsError
from . import copies
from .wheel_server import start_wheel_server

# What a container step writes that does not belong in the image.
LEFT = (
    "opt/recipe/build", "opt/recipe/tools", "mnt", "media", "tmp", "var/tmp", "proc", "sys", "dev", "run",
    "var/cache/ldconfig", "var/lib/apt/lists", "var/cache/apt", "var/cache/dnf", "root/.cache", "root/.conda",
    "etc/resolv.conf", "etc/hosts", "etc/localtime", "etc/mtab",
)  # fmt: skip
# What runs in there is the image's or the recipe's: it sees no variable and no process of this machine, and all of it
# has ended when the host reads what it wrote.
ALONE = ("exec", "--fakeroot", "--cleanenv", "--pid", "--no-home", "--no-mount", "tmp,cwd", "--pwd", "/")
OPAQUE = (".wh..wh..opq", ".wh..opq")
OPAQUE_ATTRIBUTES = ("user.overlay.opaque", "trusted.overlay.opaque")  # of the kernel, without and with root


@dataclass(frozen=True, kw_only=True)
class ContainerRunner:
    """How containers are started for steps of a build."""

    runtime: str
    folder: Path  # the plan's image/
    binds: tuple[str, ...]  # options: --bind A:B ...
    given: Path | None  # the folder with the pipes to the container, there /mnt/given
    cache: Path
    environment: Mapping[str, str]

    def run_parts(self, image: Path, parts: Sequence[str], *, work: Path) -> tuple[Path, list[str]]:
        """Run parts of install.sh in an image; return the folder with their changes, and `open_closed` of it.

        Raises LayeringError.
        """
        overlay = work / "overlay"
        for path in (overlay, work / "tmp", work / "vartmp", work / "shm"):
            path.mkdir()
            path.chmod(0o1777 if path != overlay else 0o755)
        argv = [self.runtime, *ALONE]
        # A copy: what runs in there writes next to what it reads, and must not write in the plan's own folder.
        copies.copy(self.folder, work, "build", skip=lambda entry: entry.path == "root")
        argv += ["--overlay", str(overlay), *self.binds, "--bind", f"{work / 'build'}:/opt/recipe/build"]
        argv += ["--bind", f"{work / 'tmp'}:/tmp", "--bind", f"{work / 'vartmp'}:/var/tmp"]
        argv += ["--bind", f"{work / 'shm'}:/dev/shm", str(image)]
        try:
            with start_wheel_server(
                self.folder, given=self.given, cache=self.cache, environment=self.environment, parts=parts
            ):
                for part in parts:
                    code = follow([*argv, "sh", "/opt/recipe/build/install.sh", part])
                    if code:
                        message = f"part '{part}' of the installation failed with exit code {code}"
                        raise LayeringError(message, told=True)
        except BaseException:
            with suppress(LayeringError):  # the first error is reported
                self._take_ownership(image, work)
            raise
        self._take_ownership(image, work)
        try:
            closed = open_closed(work, "overlay/upper")
            clean_upper(work, "overlay/upper")
        except tree.TreeError as error:
            raise LayeringError(f"a step has put something else in the place of its own folder: {error}") from None
        return overlay / "upper", closed

    def _take_ownership(self, image: Path, work: Path) -> None:
        """Give us the files of the container's other users, to pack and remove them. Raises LayeringError."""
        # Not every runtime has the folder that the overlay needs for itself.
        script = "chown -R 0:0 /mnt && { [ ! -d /mnt/overlay/work ] || chmod -R u+rwX /mnt/overlay/work; }"
        binds = ("--bind", f"{work}:/mnt", "--bind", f"{work / 'shm'}:/dev/shm")
        argv = [self.runtime, "--quiet", *ALONE, *binds, str(image), "sh", "-c", script]
        call(argv, what="making the files of a container step one's own")


def open_closed(work: Path, upper: str) -> list[str]:
    """Give us the rights to read what a step has closed to its owner, too; return mksquashfs's options for its modes.

    In the container root reads a folder of mode 000; here we are an ordinary user.
    """
    words: list[str] = []
    with tree.open_folder_below(work, upper):  # a link in its place is refused
        pass
    for entry in tree.walk(work / upper):
        if (mode := entry.open_up()) is not None:
            words += ["-p", f"{escape_path(entry.path)} m {mode:o} 0 0"]
    return words


def clean_upper(work: Path, upper: str) -> None:
    """Remove what does not belong in the image, also logs, which contain times; links are not followed.

    Not in the container: that would remove files of the images below, and where a site binds its file systems into
    every container, a link leads there too.
    """
    top = work / upper
    with tree.open_folder_below(work, upper):  # a link in its place is refused
        pass
    for name in LEFT:
        removal.remove(Path(name), below=top)
    for entry in tree.walk(top, "var/log"):
        if entry.kind != tree.FOLDER:
            entry.unlink()
    for name in ("opt/recipe", "opt", "var/cache", "var/lib/apt", "var/lib", "var", "etc", "root"):
        removal.remove_empty(top, name)


def find_whiteouts(upper: Path, image: Path) -> list[str]:
    """Return mksquashfs's options for what a step has removed by replacing whole folders; remove their marks.

    Marks of whole folders are extended attributes or names that a runtime without them would show as files; a device
    0/0 for each name in the folder below says the same to all of them. In a folder that hides what is below, every
    folder does so: the kernel marks the outer one alone.
    """
    marked, names = set[str](), dict[str, set[str]]()
    for entry in tree.walk(upper):
        folder = entry.path[: -len(entry.name)].rstrip("/")
        if entry.name in OPAQUE and entry.kind != tree.FOLDER:
            marked.add(folder)
            entry.unlink()
            continue
        names.setdefault(folder, set()).add(entry.name)
        if entry.kind == tree.FOLDER:
            names.setdefault(entry.path, set())
            if _is_opaque(entry):
                marked.add(entry.path)
    marked |= {folder for folder in names if any(above in marked for above in _list_parents(folder))}
    words: list[str] = []
    for folder, below in list_folders(image, sorted(marked)).items():
        for name in sorted(below - names.get(folder, set())):
            words += ["-p", f"{escape_path(f'{folder}/{name}'.lstrip('/'))} c 000 0 0 0 0"]
    return words


def _is_opaque(entry: tree.TreeEntry) -> bool:
    """Whether the kernel has marked a folder as one that hides what is below."""
    handle = tree.open_folder(entry.name, entry.at, entry.path)
    try:
        for name in OPAQUE_ATTRIBUTES:
            with suppress(OSError):
                if os.getxattr(handle, name) == b"y":
                    return True
        return False
    finally:
        os.close(handle)


def _list_parents(folder: str) -> Iterator[str]:
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


def list_folders(image: Path, folders: Sequence[str]) -> dict[str, set[str]]:
    """Return what folders of an image hold in any of its layers; raises LayeringError."""
    found: dict[str, set[str]] = {folder: set() for folder in folders}
    if not folders:
        return found
    try:
        sif = read_sif(image)
        with image.open("rb") as source:
            for item in (sif.system, *sif.overlays):
                reader = Reader(source, offset=item.offset)
                for folder in folders:
                    found[folder] |= reader.list_names(folder)
    except (SifError, SquashfsError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LayeringError(f"the file system in '{image}' cannot be read: {reason}") from None
    return found
