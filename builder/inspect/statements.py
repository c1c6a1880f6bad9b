"""What one file of an image says of it; this is kept in place of the file, which may be large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from builder.inspect import package_databases as databases
from builder.inspect.package_databases import rpm_packages
from builder.model.contents import InstalledPackage, TorchBuild
from builder.model.text import sanitize

MOST = 20_000  # packages of one file
ALL = 100_000  # of an image


@dataclass(frozen=True, kw_only=True)
class Statement:
    """All of it; most files say one thing only."""

    packages: tuple[InstalledPackage, ...] = ()
    torch: TorchBuild | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    release: Mapping[str, str] | None = None
    base: str = ""
    unknown: str = ""


@dataclass(kw_only=True)
class StatementReader:
    """Reads the files of one image, until they list more packages than any image has."""

    left: int = ALL

    def read(self, path: str, content: bytes | bytearray) -> Statement:
        """Read a wanted file."""
        found = read_statement(path, content if self.left > 0 else None)
        self.left -= len(found.packages)
        return found


def read_statement(path: str, content: bytes | bytearray | None) -> Statement:
    """Read a wanted file; None is one that could not be read."""
    package = databases.conda_package(path, content) or databases.pip_package(path, content)
    one = (package,) if package is not None and package.name else ()
    if content is None:
        return Statement(packages=one, unknown=f"{sanitize(path, limit=200)} could not be read")
    if one:
        return Statement(packages=one)
    if databases.DPKG.fullmatch(path):
        found = tuple(islice(databases.deb_packages(content), MOST + 1))
        more = f"{sanitize(path, limit=200)} lists more than {MOST} packages" if len(found) > MOST else ""
        return Statement(packages=found[:MOST], unknown=more)
    if databases.RPM.fullmatch(path):
        rpms = rpm_packages(content) if path.endswith(".sqlite") else None
        unread = f"packages of rpm: {path} is not a database that can be read without rpm"
        return Statement(packages=rpms or (), unknown=unread if rpms is None else "")
    if path == databases.APK:
        return Statement(unknown="packages of apk (Alpine) are not listed")
    if path == databases.LABELS:
        return Statement(labels=databases.label_table(databases.table(content)))
    if path == databases.RECORD:
        return Statement(base=databases.word(databases.table(content).get("base")))
    if path in databases.RELEASES:
        return Statement(release=databases.release(content))
    return Statement(torch=databases.torch_build(path, content) if content else None)
