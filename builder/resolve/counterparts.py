"""What takes a vendor's package's place on another vendor's site, where the tables say that it is the same package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from builder.model.recipe import PipRequirement
from builder.model.site import BaseImage, Site
from builder.model.stack.packages import Counterpart, package_table
from builder.resolve.names import fits
from builder.resolve.stack import cuda_fits


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A requirement in another's place, and the row that says so."""

    text: str
    row: Counterpart

    @property
    def why(self) -> str:
        """Say in a few words what it is."""
        if self.row.vendor == "cpu":
            return "its counterpart where there is no GPU"
        names = {"amd": "AMD", "nvidia": "NVIDIA", "intel": "Intel"}
        return f"its counterpart for {names[self.row.vendor]} GPUs, with the same module"


def replacement(line: PipRequirement, *, site: Site, base: BaseImage, python: str | None) -> Replacement | None:
    """The requirement that takes another's place on a site; None where there is none, or where it is not certain.

    A file by its address and hashes stand for one file: nothing else fits them.
    """
    if line.url or line.hashes or "+" in line.specifier:
        return None
    for row in package_table().counterparts:
        if row.vendor != site.vendor or not fits(line.name, row.name):
            continue
        extras = [extra for extra in line.extras if row.extra and fits(extra, row.extra)]
        version = _version(row, line.specifier)
        if (row.extra and not extras) or version is None or not _runs(row, site=site, base=base, python=python):
            continue
        kept = [extra for extra in line.extras if extra not in extras] + ([row.gains] if row.gains else [])
        marker = f" ; {line.marker}" if line.marker else ""
        text = f"{row.becomes}{'[' + ','.join(kept) + ']' if kept else ''}{version}{marker}"
        return Replacement(text=text, row=row)
    return None


def _version(row: Counterpart, specifier: str) -> str | None:
    """The counterpart's version: what was asked for, or the newest of the table's that it allows; None for none."""
    known: Mapping[str, str] = {version: version for version in row.versions} | dict(row.renumbered)
    if not known:
        return specifier
    try:
        allowed = [version for version in known if SpecifierSet(specifier).contains(version, prereleases=True)]
    except InvalidSpecifier:
        return None
    return f"=={known[max(allowed, key=Version)]}" if allowed else None


def _runs(row: Counterpart, *, site: Site, base: BaseImage, python: str | None) -> bool:
    """Whether the image has the libraries it needs, the driver serves them and there is a file for the Python."""
    if row.pythons and python not in row.pythons:
        return False
    if row.cuda and not cuda_fits(row.cuda, site=site):
        return False
    if not row.rocm:
        return True
    brought = (base.rocm or "").split(".")
    wanted = row.rocm.split(".")
    served = site.gpu.rocm if site.gpu else ()
    return brought[: len(wanted)] == wanted and (not served or ".".join(brought[:2]) in served)
