"""What only a container can do: distribution packages, packages from sources, the recipe's own commands.

It runs in the image as it is so far, with a folder laid over it; the folder becomes a layer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..sif import tree
from ..sif.errors import LayeringError
from ..sif.pack import escaped
from ..sif.programs import call, follow
from ..sif.reader import Reader
from ..sif.sif import SifError, read_sif
from ..sif.squashfs import SquashfsError
from . import copies
from .wheel_server import offered

# What a container step leaves that is no part of the image.
LEFT = (
    "opt/recipe/build", "opt/recipe/tools", "mnt", "media", "tmp", "var/tmp", "proc", "sys", "dev", "run",
    "var/cache/ldconfig", "var/lib/apt/lists", "var/cache/apt", "var/cache/dnf", "root/.cache", "root/.conda",
    "etc/resolv.conf", "etc/hosts", "etc/localtime", "etc/mtab",
)  # fmt: skip
# Whatever runs in there is the image's or the recipe's: it sees no variable and no process of this machine, and none of
# it is left when the host reads what it wrote.
ALONE = ("exec", "--fakeroot", "--cleanenv", "--pid", "--no-home", "--no-mount", "tmp,cwd", "--pwd", "/")
OPAQUE = (".wh..wh..opq", ".wh..opq")
OPAQUE_ATTRIBUTES = ("user.overlay.opaque", "trusted.overlay.opaque")  # of the kernel, without and with root


@dataclass(frozen=True, kw_only=True)
class Containers:
    """How containers are started for steps of a build."""

    runtime: str
    folder: Path  # the plan's image/
    binds: tuple[str, ...]  # words: --bind A:B ...
    given: Path | None  # the folder with the pipes to the container, /mnt/given there
    cache: Path
    environment: Mapping[str, str]

    def layer(self, image: Path, parts: Sequence[str], *, work: Path) -> Path:
        """Run parts of install.sh in an image; the folder with what they changed. Raises LayeringError."""
        overlay = work / "overlay"
        for path in (overlay, work / "tmp", work / "vartmp"):
            path.mkdir()
            path.chmod(0o1777 if path != overlay else 0o755)
        argv = [self.runtime, *ALONE]
        # A copy: what runs in there writes beside what it reads, and nothing of the plan's own folder.
        copies.copy(self.folder, work, "build", skip=lambda entry: entry.path == "root")
        argv += ["--overlay", str(overlay), *self.binds, "--bind", f"{work / 'build'}:/opt/recipe/build"]
        argv += ["--bind", f"{work / 'tmp'}:/tmp", "--bind", f"{work / 'vartmp'}:/var/tmp", str(image)]
        try:
            with offered(self.folder, given=self.given, cache=self.cache, environment=self.environment, parts=parts):
                for part in parts:
                    code = follow([*argv, "sh", "/opt/recipe/build/install.sh", part])
                    if code:
                        message = f"part '{part}' of the installation failed with exit code {code}"
                        raise LayeringError(message, told=True)
        except BaseException:
            with suppress(LayeringError):  # what went wrong before is what is said
                self._own(image, work)
            raise
        self._own(image, work)
        try:
            tidy(work, "overlay/upper")
        except tree.TreeError as error:
            raise LayeringError(f"a step has put something else in the place of its own folder: {error}") from None
        return overlay / "upper"

    def _own(self, image: Path, work: Path) -> None:
        """Files of the container's other users become ours, to be packed and removed. Raises LayeringError."""
        # The folder that the file system needs for itself is not there with every runtime.
        script = "chown -R 0:0 /mnt && { [ ! -d /mnt/overlay/work ] || chmod -R u+rwX /mnt/overlay/work; }"
        argv = [self.runtime, "--quiet", *ALONE, "--bind", f"{work}:/mnt", str(image), "sh", "-c", script]
        call(argv, what="making the files of a container step one's own")


def tidy(work: Path, upper: str) -> None:
    """Remove what is no part of the image, also logs, which hold times; what lies behind a link is none of it.

    Not in the container: it would remove what the images below hold, and where a site shows its file systems to every
    container, a link leads there too.
    """
    top = work / upper
    with tree.folder(work, upper):  # a link in its place is refused
        pass
    for name in LEFT:
        tree.remove(Path(name), below=top)
    for entry in tree.walk(top, "var/log"):
        if entry.kind != tree.FOLDER:
            entry.unlink()
    for name in ("opt/recipe", "opt", "var/cache", "var/lib/apt", "var/lib", "var", "etc", "root"):
        tree.remove_empty(top, name)


def whiteouts(upper: Path, image: Path) -> list[str]:
    """mksquashfs's words for what a step has removed by replacing whole folders; their marks are taken away.

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
    marked |= {folder for folder in names if any(above in marked for above in _above(folder))}
    words: list[str] = []
    for folder, below in names_in(image, sorted(marked)).items():
        for name in sorted(below - names.get(folder, set())):
            words += ["-p", f"{escaped(f'{folder}/{name}'.lstrip('/'))} c 000 0 0 0 0"]
    return words


def _is_opaque(entry: tree.Entry) -> bool:
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


def _above(folder: str) -> Iterator[str]:
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder


def names_in(image: Path, folders: Sequence[str]) -> dict[str, set[str]]:
    """What folders of an image hold in any of its layers; raises LayeringError."""
    found: dict[str, set[str]] = {folder: set() for folder in folders}
    if not folders:
        return found
    try:
        sif = read_sif(image)
        with image.open("rb") as source:
            for item in (sif.system, *sif.overlays):
                reader = Reader(source, offset=item.offset)
                for folder in folders:
                    found[folder] |= reader.names(folder)
    except (SifError, SquashfsError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LayeringError(f"the file system in '{image}' cannot be read: {reason}") from None
    return found
