"""The description of an image in a plan: `layers.json`, and the folder `image/` next to it.

RECIPE_OFFLINE forbids requests to servers: a build then uses what was fetched before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..sif.bounded import read_json
from ..sif.errors import LayeringError


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`layers.json`, and the files of `image/`."""

    folder: Path  # image/
    image: str
    base: str
    place: str  # venv, base or conda
    machine: str
    zstd: bool
    python: str  # X.Y that the recipe requires, or ""
    conda: Mapping[str, Any]  # channels, specs, platform and cuda, or exact packages; empty without conda packages
    expect: dict[str, str]
    tool: str

    def read_text(self, name: str) -> str:
        """Read a file of `image/`, "" if it is missing."""
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.is_file() else ""


def read_spec(path: Path) -> Spec:
    """Read `layers.json`; raises LayeringError."""
    try:
        found: dict[str, Any] = read_json(path)
        return Spec(
            folder=path.resolve().parent / "image",
            image=str(found["image"]),
            base=_place(str(found["base"]), folder=path.resolve().parent),
            place=str(found["place"]),
            machine=str(found["machine"]),
            zstd=bool(found["zstd"]),
            python=str(found["python"]),
            conda=dict(found["conda"]),
            expect={str(name): str(value) for name, value in found["expect"].items()},
            tool=str(found["tool"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LayeringError(f"'{path}' is not a description of layers: {error}", fix="write the plan again") from None


def _place(base: str, *, folder: Path) -> str:
    """A base image next to the plan, as in a bundle, by its whole path; any other as it is."""
    return str((folder / base).resolve()) if base.startswith("../") else base


VARIABLE = "RECIPE_OFFLINE"
FIX = "fetch it where there is a network: `recipe fetch`, with the same RECIPE_CACHE_DIR"


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether requests to servers are forbidden."""
    return environment.get(VARIABLE, "").lower() not in ("", "0", "no", "false")
