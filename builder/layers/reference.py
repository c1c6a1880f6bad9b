"""The name of an image in a registry, as Docker reads it."""

from __future__ import annotations

import re

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
HUB = "docker.io"
HUB_SERVER = "registry-1.docker.io"  # what answers for docker.io
HUB_NAMES = (HUB, HUB_SERVER, "index.docker.io")


def parse_reference(reference: str) -> tuple[str, str, str]:
    """Host, name and tag (or digest) of `docker://NAME` or NAME; the host is that of the server."""
    name = reference.rpartition("://")[2]
    first, slash, rest = name.partition("/")
    named = bool(slash) and ("." in first or ":" in first or first == "localhost")
    host, path = (first, rest) if named else (HUB, name)
    path, at, digest = path.partition("@")
    path, _, tag = path.partition(":")
    if host in HUB_NAMES:
        host, path = HUB_SERVER, path if "/" in path else f"library/{path}"
    return host, path, digest if at else tag or "latest"


def find_registry(reference: str) -> str:
    """The host of an image in a registry as a user writes it; empty for a file."""
    if "://" not in reference:
        return ""
    host = parse_reference(reference)[0]
    return HUB if host == HUB_SERVER else host
