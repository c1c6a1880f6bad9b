"""Packages that an image has already, passed to uv: it resolves against them and does not install them again.

uv cannot be given installed packages without their environment. An empty wheel of the same name and version, passed as
a constraint by its address, has that effect: what conflicts with it is refused in uv's words.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,100}[A-Za-z0-9])?")
VERSION = re.compile(r"[A-Za-z0-9.!_+-]{1,100}")


def is_distribution(name: str, version: str) -> bool:
    """Whether name and version are valid: an image may claim anything, and both become a file name and a line."""
    return bool(NAME.fullmatch(name) and VERSION.fullmatch(version))


def write_stubs(folder: Path, provided: Mapping[str, str]) -> list[str]:
    """Write an empty wheel for each package and return the constraints that name them; invalid ones are left out."""
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
