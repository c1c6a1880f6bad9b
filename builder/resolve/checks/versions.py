"""Check of a package that both conda's list and pip's list request, with versions that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.model.finding import Finding, Level
from builder.model.recipe import PipRequirement
from builder.model.target import Target
from builder.resolve.checks.packages import locate
from builder.resolve.conda_names import find_python_name, to_specifier
from builder.resolve.requested import FAMILY


def check_two_versions(target: Target) -> Iterator[Finding]:
    """Report a package that no version of satisfies both lists: pip replaces conda's, or refuses its own two lines."""
    pinned: dict[str, list[PipRequirement]] = {}
    for line in target.recipe.pip:
        if line.specifier and not line.url and not line.marker and line.name not in FAMILY:
            pinned.setdefault(line.name, []).append(line)
    for spec in target.recipe.conda if pinned else ():
        name = find_python_name(spec.name) or str(canonicalize_name(spec.name))
        wanted = to_specifier(spec.version) if name in pinned else None
        for line in pinned[name] if wanted else ():
            if not _has_conflict(wanted or "", line.specifier):
                continue
            by_conda = target.environment.place == "conda"
            message = f"'{line.text}' of pip contradicts '{spec.text}' of conda: "
            message += "pip replaces what conda installed" if by_conda else "pip installs both here, and refuses them"
            level: Level = "warning" if by_conda else "error"
            at = locate(target.recipe, line)
            yield Finding(code="two-versions", message=message, at=at, fix="keep one of the two", level=level)


def _has_conflict(one: str, other: str) -> bool:
    """Whether no version satisfies both; only where one of them pins a version, or its first numbers."""
    both = SpecifierSet(f"{one},{other}")
    if not any(item.operator in ("==", "===", "~=") for item in both):
        return False
    tried = {"0"}
    for item in both:
        version = item.version.removesuffix(".*")
        tried |= {version} | {f"{version}.{patch}" for patch in (0, 1, 9, 99)}
        if item.version.endswith(".*") or item.operator == "~=":
            tried |= {f"{version}.{patch}" for patch in range(2, 31)}
    return not any(both.contains(Version(version), prereleases=True) for version in tried if _is_version(version))


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except ValueError:
        return False
    return True
