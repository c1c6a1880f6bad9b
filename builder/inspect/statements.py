"""What one file of an image says of it: kept in place of the file, which may be large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from builder.inspect import package_databases as read
from builder.inspect.package_databases import rpm_packages
from builder.model.contents import Package, TorchBuild
from builder.model.text import shown

MOST = 20_000  # packages of one file
ALL = 100_000  # of an image


@dataclass(frozen=True, kw_only=True)
class Said:
    """All of it; most files say one thing only."""

    packages: tuple[Package, ...] = ()
    torch: TorchBuild | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    release: Mapping[str, str] | None = None
    base: str = ""
    unknown: str = ""


@dataclass(kw_only=True)
class Reader:
    """Reads the files of one image, until they list more packages than any image has."""

    left: int = ALL

    def said_of(self, path: str, content: bytes | bytearray) -> Said:
        """Read a wanted file."""
        found = said_of(path, content if self.left > 0 else None)
        self.left -= len(found.packages)
        return found


def said_of(path: str, content: bytes | bytearray | None) -> Said:
    """Read a wanted file; None is one that could not be read."""
    package = read.conda_package(path, content) or read.pip_package(path, content)
    one = (package,) if package is not None and package.name else ()
    if content is None:
        return Said(packages=one, unknown=f"{shown(path, limit=200)} could not be read")
    if one:
        return Said(packages=one)
    if read.DPKG.fullmatch(path):
        found = tuple(islice(read.deb_packages(content), MOST + 1))
        more = f"{shown(path, limit=200)} lists more than {MOST} packages" if len(found) > MOST else ""
        return Said(packages=found[:MOST], unknown=more)
    if read.RPM.fullmatch(path):
        rpms = rpm_packages(content) if path.endswith(".sqlite") else None
        unread = f"packages of rpm: {path} is not a database that can be read without rpm"
        return Said(packages=rpms or (), unknown=unread if rpms is None else "")
    if path == read.APK:
        return Said(unknown="packages of apk (Alpine) are not listed")
    if path == read.LABELS:
        return Said(labels=read.label_table(read.table(content)))
    if path == read.RECORD:
        return Said(base=read.word(read.table(content).get("base")))
    if path in read.RELEASES:
        return Said(release=read.release(content))
    return Said(torch=read.torch_build(path, content) if content else None)
