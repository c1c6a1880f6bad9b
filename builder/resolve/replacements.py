"""The counterpart of a package for the site's vendor, from the table of packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from builder.model.recipe import PipRequirement
from builder.model.site import BaseImage, Site
from builder.parse.gpu_tables import Counterpart, load_package_table
from builder.resolve.conda_names import matches
from builder.resolve.tokens import serves_cuda

LIBRARIES_SINCE = "14.0"  # CuPy's first release with the extra


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A requirement that replaces another, with the row of the table."""

    text: str
    row: Counterpart

    @property
    def why(self) -> str:
        """The reason in a few words."""
        if self.row.vendor == "cpu":
            return "its counterpart where there is no GPU"
        names = {"amd": "AMD", "nvidia": "NVIDIA", "intel": "Intel"}
        return f"its counterpart for {names[self.row.vendor]} GPUs, with the same module"


def find_replacement(line: PipRequirement, *, site: Site, base: BaseImage, python: str | None) -> Replacement | None:
    """Find the requirement that replaces a line on a site; None if there is none or it is not certain.

    A line with a file address or hashes names one exact file and is never replaced.
    """
    if line.url or line.hashes or "+" in line.specifier:
        return None
    for row in load_package_table().counterparts:
        if row.vendor != site.vendor or not matches(line.name, row.name):
            continue
        extras = [extra for extra in line.extras if row.extra and matches(extra, row.extra)]
        version = _version(row, line.specifier)
        if (row.extra and not extras) or version is None or not _can_run(row, site=site, base=base, python=python):
            continue
        kept = [extra for extra in line.extras if extra not in extras] + ([row.gains] if row.gains else [])
        if row.libraries and not base.cuda and _is_since(LIBRARIES_SINCE, version):
            kept = sorted({*kept, row.libraries})
        marker = f" ; {line.marker}" if line.marker else ""
        text = f"{row.becomes}{'[' + ','.join(kept) + ']' if kept else ''}{version}{marker}"
        return Replacement(text=text, row=row)
    return None


def _version(row: Counterpart, specifier: str) -> str | None:
    """Choose the counterpart's version: the requested one, or the newest allowed one of the table; None if none."""
    known: Mapping[str, str] = {version: version for version in row.versions} | dict(row.renumbered)
    if not known:
        return specifier if not row.since or _is_since(row.since, specifier) else None
    try:
        allowed = [version for version in known if SpecifierSet(specifier).contains(version, prereleases=True)]
    except InvalidSpecifier:
        return None
    return f"=={known[max(allowed, key=Version)]}" if allowed else None


def _is_since(first: str, specifier: str) -> bool:
    """Whether a specifier pins no release before the first one, and has no upper bound below it."""
    try:
        bounds = SpecifierSet(specifier)
    except InvalidSpecifier:
        return False
    upper = (
        Version(item.version.removesuffix(".*")) for item in bounds if item.operator in ("==", "===", "<", "<=", "~=")
    )
    return all(one >= Version(first) for one in upper)


def _can_run(row: Counterpart, *, site: Site, base: BaseImage, python: str | None) -> bool:
    """Whether the image has the libraries, the driver serves them and there is a file for the Python."""
    if row.pythons and python not in row.pythons:
        return False
    if row.cuda and not serves_cuda(row.cuda, site=site):
        return False
    if not row.rocm:
        return True
    brought = (base.rocm or "").split(".")
    wanted = row.rocm.split(".")
    served = site.gpu.rocm if site.gpu else ()
    return brought[: len(wanted)] == wanted and (not served or ".".join(brought[:2]) in served)
