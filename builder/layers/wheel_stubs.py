"""Packages that are in an image before pip's, told to uv: they are resolved against and not installed again.

uv has no notion of a package that is installed already without its environment being here. An empty wheel of the
same name and version, given as a constraint by its address, is one: what does not fit it is refused in uv's words.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,100}[A-Za-z0-9])?")
VERSION = re.compile(r"[A-Za-z0-9.!_+-]{1,100}")


def is_distribution(name: str, version: str) -> bool:
    """Say whether these can be a package's: an image says what it likes, and both become a file and a line here."""
    return bool(NAME.fullmatch(name) and VERSION.fullmatch(version))


def write_stubs(folder: Path, provided: Mapping[str, str]) -> list[str]:
    """Write an empty wheel for each package and return the constraints that name them; others are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, version in sorted(provided.items()):
        if not is_distribution(name, version):
            continue
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
