"""Python packages that are in an image before pip's: they are resolved against, and stay out of the lock.

uv has no notion of a package that is installed already without its environment being here. An empty wheel of the
same name and version, given as a constraint by its address, is one: what does not fit it is refused in uv's words.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from builder.model.lock import CondaPackage
from builder.resolve.names import python_name


def write_stubs(folder: Path, provided: Mapping[str, str]) -> list[str]:
    """Write an empty wheel for each package and return the constraints that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, version in sorted(provided.items()):
        stem = name.replace("-", "_")
        path = folder / f"{stem}-{version}-py3-none-any.whl"
        info = f"{stem}-{version}.dist-info"
        texts = {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: recipe\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }
        with zipfile.ZipFile(path, "w") as archive:
            for inside, text in texts.items():
                archive.writestr(zipfile.ZipInfo(inside), text)
        lines.append(f"{name} @ {path.as_uri()}")
    return lines


def plain(provided: Mapping[str, str]) -> dict[str, str]:
    """Names and versions in normal form; a version that Python does not know is left out."""
    found = {}
    for name, version in provided.items():
        try:
            found[str(canonicalize_name(name))] = str(Version(version))
        except InvalidVersion:
            continue
    return found


def of_conda(packages: Iterable[CondaPackage]) -> dict[str, str]:
    """The Python packages among conda's: those of the table of names, and those that depend on Python itself."""
    found = {}
    for package in packages:
        needs = {spec.split()[0] for spec in package.depends}
        known = python_name(package.name)
        if package.name not in ("python", "python_abi") and (known or needs & {"python", "python_abi"}):
            found[known or package.name] = package.version
    return plain(found)
