"""Small wheels, written by hand."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path


def write_wheel(
    folder: Path, *, name: str, version: str, requires: Sequence[str] = (), text: str = "", data: bytes = b""
) -> Path:
    """Write a wheel with one module and its requirements; `data` is a file beside it, as it is."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    files: dict[str, str | bytes] = {
        **({f"{module}/data.bin": data} if data else {}),
        f"{module}/__init__.py": text or f'__version__ = "{version}"\n',
        f"{info}/METADATA": "\n".join([*metadata, *(f"Requires-Dist: {item}" for item in requires)]) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{module}-{version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in {**files, f"{info}/RECORD": record}.items():
            # A date that any pip takes, the same for the same wheel.
            archive.writestr(zipfile.ZipInfo(file, (2020, 1, 1, 0, 0, 0)), content)
    return path
