"""Python packages that an image has before pip runs: pip's are resolved against them, and a lock leaves them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from builder.layers.conda_solver import CondaPackage
from builder.layers.wheel_stubs import is_distribution
from builder.resolve.conda_names import find_python_name


def normalise_packages(provided: Mapping[str, str]) -> dict[str, str]:
    """Return names and versions in normal form, without invalid ones."""
    found = {}
    for name, version in provided.items():
        if not is_distribution(name, version):
            continue
        try:
            found[str(canonicalize_name(name))] = str(Version(version))
        except InvalidVersion:
            continue
    return found


def python_packages(packages: Iterable[CondaPackage]) -> dict[str, str]:
    """Return the Python packages among conda's: those in the table of names, and those that depend on Python."""
    found = {}
    for package in packages:
        needs = {spec.split()[0] for spec in package.depends}
        known = find_python_name(package.name)
        if package.name not in ("python", "python_abi") and (known or needs & {"python", "python_abi"}):
            found[known or package.name] = package.version
    return normalise_packages(found)
