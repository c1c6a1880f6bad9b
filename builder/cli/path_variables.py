"""Paths in variables, made absolute once: programs of a build work in other folders than the user's."""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping

PATHS = (
    "RECIPE_CACHE_DIR", "RECIPE_CACHE_SHARED", "RECIPE_TMPDIR", "RECIPE_MNIST", "TMPDIR", "UV_CACHE_DIR",
    "UV_CREDENTIALS_DIR", "SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC", "DOCKER_CONFIG",
    "APPTAINER_CACHEDIR", "APPTAINER_TMPDIR", "SINGULARITY_CACHEDIR", "SINGULARITY_TMPDIR",
)  # fmt: skip
PROGRAMS = ("RECIPE_UV", "RECIPE_PYTHON")  # a name without a slash is looked up on PATH
FOLDERS = "SSL_CERT_DIR"
LISTS = ("PIP_FIND_LINKS", "UV_FIND_LINKS")
INDEXES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX")
_WORD = r"[^\s,]+"
_NAMED = r"(?:([A-Za-z0-9_.-]+)=)?([^\s,]+)"  # NAME=PATH, as uv takes an index


def make_paths_absolute(environment: MutableMapping[str, str]) -> None:
    """Replace relative paths in the variables that a build reads; of lists only those that exist."""
    for name in (*PATHS, *(name for name in PROGRAMS if "/" in environment.get(name, ""))):
        if value := environment.get(name):
            _set(environment, name, _make_absolute(value))
    if value := environment.get(FOLDERS):
        _set(environment, FOLDERS, os.pathsep.join(_make_absolute(part) for part in value.split(os.pathsep)))
    for name in LISTS:
        if value := environment.get(name):
            _set(environment, name, re.sub(_WORD, lambda match: _make_place(match[0]), value))
    for name in INDEXES:
        if value := environment.get(name):
            _set(environment, name, re.sub(_NAMED, lambda match: _name(match[1], _make_place(match[2])), value))


def _set(environment: MutableMapping[str, str], name: str, value: str) -> None:
    if environment[name] != value:
        environment[name] = value


def _make_absolute(text: str) -> str:
    return os.path.abspath(text) if text and text[0] not in "/~" else text  # noqa: PTH100 - links stay


def _make_place(word: str) -> str:
    """A path as one word: an address of a file where the folder above it has blanks or commas."""
    if "://" in word or word[0] in "/~" or not os.path.exists(word):  # noqa: PTH110 - pathlib is slow to load
        return word
    path = _make_absolute(word)
    if not re.search(r"[\s,]", path):
        return path
    from urllib.parse import quote

    return f"file://{quote(path)}"


def _name(name: str | None, place: str) -> str:
    return f"{name}={place}" if name else place
