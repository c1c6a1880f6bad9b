"""What was read of a distribution as plain data, for a cache: all that a verdict needs, and nothing else."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .binary import Binary
from .device_code import Code
from .distribution import Distribution
from .runtimes import find_runtime

FORMAT = 1  # version of the facts and of how files are read; another number reads all files again
TEXTS = ("path", "machine", "soname", "glibc", "python", "fault")


def describe_distribution(one: Distribution) -> dict[str, Any]:
    """A distribution; of the libraries that a file needs only GPU runtimes."""
    return {
        "kind": one.kind, "name": one.name, "version": one.version, "python": one.python, "tags": list(one.tags),
        "files": [_describe_binary(binary) for binary in one.binaries],
    }  # fmt: skip


def _describe_binary(binary: Binary) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(binary, name) for name in TEXTS}
    found |= {"size": binary.size, "needed": [runtime.name for runtime in binary.linked]}
    found |= {"opened": list(binary.opened), "code": [asdict(code) for code in binary.code]}
    return {name: value for name, value in found.items() if value}


def parse_distribution(found: Any) -> Distribution:
    """The distribution that `describe_distribution` wrote; raises KeyError, TypeError or AttributeError."""
    return Distribution(
        kind=found["kind"], name=found["name"], version=found["version"], python=found["python"],
        tags=tuple(found["tags"]), binaries=tuple(_parse_binary(row) for row in found["files"]),
    )  # fmt: skip


def _parse_binary(found: dict[str, Any]) -> Binary:
    needed = tuple(str(name) for name in found.get("needed", ()))
    return Binary(
        **{name: str(found.get(name, "")) for name in TEXTS},
        size=int(found.get("size", 0)),
        needed=needed,
        opened=tuple(found.get("opened", ())),
        code=tuple(Code(**code) for code in found.get("code", ())),
        linked=tuple(runtime for name in needed if (runtime := find_runtime(name)) is not None),
    )
