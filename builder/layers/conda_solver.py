"""The request to conda's solver and its answer, the same for layers and for locks: virtual packages, exact packages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TOKEN = re.compile(r"/t/[^/]+/")  # the credential of a private channel


@dataclass(frozen=True, kw_only=True)
class CondaPackage:
    """One file of a channel; hashes as lower-case hexadecimal digits, size in bytes (0: not known)."""

    name: str
    version: str
    build: str
    subdir: str
    url: str
    sha256: str
    md5: str = ""
    size: int = 0
    depends: tuple[str, ...] = ()
    license: str = ""

    @property
    def file_name(self) -> str:
        """The name of the file."""
        return self.url.rpartition("/")[2]

    @property
    def address(self) -> str:
        """The address that an image records: without tokens, and without folders of this machine."""
        if self.url.startswith("file://"):
            return f"file:///mnt/conda/{self.subdir}/{self.file_name}"
        return TOKEN.sub("/", self.url)

    @property
    def inputs(self) -> list[object]:
        """What decides its files in an image."""
        return [self.name, self.version, self.build, self.sha256, self.address, sorted(self.depends)]


def list_virtual_packages(*, machine: str, glibc: str, cuda: str) -> tuple[str, ...]:
    """Return what the image has for conda's solver, NAME=VERSION=BUILD; nothing of this machine.

    The kernel's version is no fact of a site: the lowest is given, which every package accepts that does not ask for
    one. The processor is the family's oldest: an image runs on all nodes of a site.
    """
    driver = [f"__cuda={cuda}=0"] if cuda else []
    return (f"__archspec=1={machine}", *driver, f"__glibc={glibc}=0", "__linux=0=0", "__unix=0=0")


def solve_request(
    *,
    channels: Sequence[str],
    specs: Sequence[str],
    virtual: Sequence[str],
    platform: str,
    cache: Path,
    work: Path,
    alias: str,
    offline: bool,
    folder: str = "/",
    output: str = "",
) -> dict[str, object]:
    """Return the request to conda_worker.py.

    `cache` is conda's folder of the cache: lists of packages are kept there, but in `work` where an address has a
    token. `alias` is CONDA_CHANNEL_ALIAS, `folder` what relative channels are relative to, `output` a lock to write.
    """
    private = any(TOKEN.search(f"{address}/") for address in (*channels, alias))
    return {
        "do": "solve",
        "folder": folder,
        "channels": [channel for channel in channels if channel != "nodefaults"],
        "specs": list(specs),
        "virtual": list(virtual),
        "platform": platform,
        "cache": str((work if private else cache) / "repodata"),
        "offline": offline,
        "output": output,
    }
