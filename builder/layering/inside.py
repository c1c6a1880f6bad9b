"""What only a container can do: distribution packages, packages from sources, the recipe's own commands.

It runs in the image as it is so far, with a folder laid over it; the folder becomes a layer.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .failure import LayeringError
from .image.sif import read_sif
from .programs import ask, call, clean_environment, follow, needed_program
from .store import remove

# What a container step leaves that is no part of the image.
LEFT = (
    "opt/recipe/build", "opt/recipe/tools", "mnt", "media", "tmp", "var/tmp", "proc", "sys", "dev", "run",
    "var/cache/ldconfig", "var/lib/apt/lists", "var/cache/apt", "var/cache/dnf", "root/.cache", "root/.conda",
    "etc/resolv.conf", "etc/hosts", "etc/localtime", "etc/mtab",
)  # fmt: skip
OPAQUE = (".wh..wh..opq", ".wh..opq")


@dataclass(frozen=True, kw_only=True)
class Containers:
    """How containers are started for steps of a build."""

    runtime: str
    folder: Path  # the plan's image/
    binds: tuple[str, ...]  # words: --bind A:B ...

    def layer(self, image: Path, parts: Sequence[str], *, work: Path) -> Path:
        """Run parts of install.sh in an image; the folder with what they changed. Raises LayeringError."""
        overlay = work / "overlay"
        for path in (overlay, work / "tmp", work / "vartmp"):
            path.mkdir()
            path.chmod(0o1777 if path != overlay else 0o755)
        argv = [self.runtime, "exec", "--fakeroot", "--cleanenv", "--no-home", "--no-mount", "tmp,cwd", "--pwd", "/"]
        argv += ["--overlay", str(overlay), *self.binds, "--bind", f"{self.folder}:/opt/recipe/build"]
        argv += ["--bind", f"{work / 'tmp'}:/tmp", "--bind", f"{work / 'vartmp'}:/var/tmp", str(image)]
        try:
            for part in parts:
                code = follow([*argv, "sh", "/opt/recipe/build/install.sh", part])
                if code:
                    raise LayeringError(f"part '{part}' of the installation failed with exit code {code}", told=True)
        finally:
            self._own(image, work)
        upper = overlay / "upper"
        tidy(upper)
        return upper

    def _own(self, image: Path, work: Path) -> None:
        """Files of the container's other users become ours, so that they can be packed and removed."""
        argv = [self.runtime, "--quiet", "exec", "--fakeroot", "--no-home", "--no-mount", "tmp,cwd", "--pwd", "/"]
        argv += [
            "--bind",
            f"{work}:/mnt",
            str(image),
            "sh",
            "-c",
            "chown -R 0:0 /mnt; chmod -R u+rwX /mnt/overlay/work",
        ]
        ask(argv, env=clean_environment())


def tidy(upper: Path) -> None:
    """Remove what is no part of the image, also logs, which hold times."""
    for name in LEFT:
        path = upper / name
        if path.is_dir() and not path.is_symlink():
            remove(path)
        else:
            path.unlink(missing_ok=True)
    log = upper / "var" / "log"
    for root, _, files in os.walk(log):
        for name in files:
            Path(root, name).unlink()
    for name in ("opt/recipe", "opt", "var/cache", "var/lib/apt", "var/lib", "var", "etc", "root"):
        path = upper / name
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def whiteouts(upper: Path, image: Path) -> list[str]:
    """mksquashfs's words for what a step has removed by replacing whole folders; their marks are taken away.

    Marks of whole folders are extended attributes or names that a runtime without them would show as files; a device
    0/0 for each name in the folder below says the same to all of them.
    """
    words: list[str] = []
    for root, _, files in os.walk(upper):
        marks = [name for name in OPAQUE if name in files]
        for name in marks:
            Path(root, name).unlink()
        if not marks:
            continue
        folder = os.path.relpath(root, upper)
        for name in sorted(names_in(image, folder) - {path.name for path in Path(root).iterdir()}):
            words += ["-p", f'"{folder}/{name}" c 000 0 0 0 0']
    return words


def names_in(image: Path, folder: str) -> set[str]:
    """What a folder of an image holds in any of its layers."""
    found: set[str] = set()
    sif = read_sif(image)
    program = needed_program("unsquashfs", fix="install squashfs-tools")
    for item in (sif.system, *sif.overlays):
        out = call([program, "-l", "-o", str(item.offset), str(image), folder], what=f"reading '{image}'")
        start = f"squashfs-root/{folder}/"
        found |= {line[len(start) :].split("/")[0] for line in out.splitlines() if line.startswith(start)}
    return found - {""}


def is_whiteout(path: Path) -> bool:
    """Whether a file of an overlay's folder says that the name is gone."""
    seen = path.lstat()
    return stat.S_ISCHR(seen.st_mode) and seen.st_rdev == 0
