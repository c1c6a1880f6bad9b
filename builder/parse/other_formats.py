"""Files that are given by mistake: reported by name, with the file to use instead."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from builder.model.finding import Location
from builder.model.text import exists, make_config_error
from builder.parse.yaml import Table

EXPORT = (
    "activate the environment that it is of (`conda env list` has its name), "
    "then run `conda env export --from-history > environment.yml`"
)
FREEZE = "activate the environment that it is of, then run `pip freeze > requirements.txt`"
READ = "a conda environment.yml, a pip requirements.txt, a pyproject.toml, a pixi.toml or a pylock.toml is read"
FROM = "`recipe init --from {file}` makes a recipe of it"
NAMES = {
    "pipfile": ("a Pipenv file", "run `pipenv requirements > requirements.txt`"),
    "pipfile.lock": ("a Pipenv lock file", "run `pipenv requirements > requirements.txt`"),
    "poetry.lock": ("a Poetry lock file", "run `poetry export -o requirements.txt`"),
    "setup.py": ("a Python program", "write its dependencies into a requirements.txt"),
    "dockerfile": ("a Dockerfile", FROM),
}
IMAGE_FIX = "`recipe smoke SITE {file}` tests it, `recipe inspect {file}` shows what is in it"
SUFFIXES = {
    ".sif": ("an image by its name", f"give the file that it was built from, or {FROM}"),
    ".simg": ("an image by its name", f"give the file that it was built from, or {FROM}"),
    ".def": ("an Apptainer definition file", FROM),
    ".dockerfile": ("a Dockerfile", FROM),
    ".lock": ("a lock file", "give the file that it was made from"),
    ".tar": ("an archive", "an image archive is no recipe"),
    ".ipynb": ("a notebook", "write the packages it uses into an environment.yml"),
}
PIP_SUFFIXES = (".txt", ".in")
KNOWN_SUFFIXES = (".yml", ".yaml", ".json", ".toml", *PIP_SUFFIXES)
MAGIC: dict[bytes, tuple[str, str]] = {
    b"#!/usr/bin/env run-singularity": ("an image", IMAGE_FIX),
    b"\x7fELF": ("a compiled program", READ),
    b"PK\x03\x04": ("a zip archive", READ),
    b"\x1f\x8b": ("a compressed file", READ),
    b"hsqs": ("a squashfs image", IMAGE_FIX),
}
# Keys that only one kind of file has, and what that file is.
TABLES: dict[tuple[str, ...], tuple[str, str]] = {
    ("version", "metadata", "package"): (
        "a conda-lock file",
        "give --input-kind conda-lock, or the name conda-lock.yml",
    ),
    ("jobs", "on"): ("a GitHub workflow", READ),
    ("services",): ("a Docker Compose file", READ),
    ("base_images",): ("a site file", "the order is SITE ENVIRONMENT, e.g. `recipe build lumi-g env.yml`"),
}
# What the first characters of a text show, where it was saved from another place than its recipe.
TEXTS: tuple[tuple[re.Pattern[str], tuple[str, str]], ...] = (
    (
        re.compile(r"version https://git-lfs\.github\.com/spec/"),
        ("a Git LFS pointer, without the content", "run `git lfs pull`"),
    ),
    (
        re.compile(r"\s*<(?:!doctype html|html|head)\b", re.IGNORECASE),
        ("a web page", "download the file itself: on GitHub the address behind 'Raw'"),
    ),
    (
        re.compile(r"(?:Using Python .*\r?\n)?\s*Package +Version.*\r?\n-+ +-+"),
        ("the output of `pip list`", FREEZE),
    ),
    (re.compile(r"\s*\[\{\"name\": \"[^\"]+\", \"version\""), ("the output of `pip list --format json`", FREEZE)),
    (re.compile(r"\s*Name: \S+\r?\nVersion: "), ("the output of `pip show`", FREEZE)),
    (
        re.compile(r"(?:[^\n]*\n){0,9}?\s*(?:[│|] *)*(?:[├└]─+|-) \S+ \[required: ", re.IGNORECASE),
        ("the output of `pipdeptree`", FREEZE),
    ),
    (
        re.compile(r"(?:[^\n]*\n){0,3}?[├└]── \S+ v\d"),
        ("the output of `uv tree`", "run `uv export -o requirements.txt`"),
    ),
    (
        re.compile(r"\s*Package +Version +Build +Size +Kind"),
        ("the output of `pixi list`", "give the pixi.toml or the pyproject.toml of the workspace"),
    ),
    (re.compile(r"\s*# conda environments:"), ("the output of `conda env list`", EXPORT)),
    (
        # Some releases of mamba write a banner or an empty line before it; the JSON form begins with `base_url`.
        re.compile(
            r"(?:[^\n]*\n){0,3}?\s*(?:# packages in environment at |List of packages in environment: )"
            r"|\s*\[\s*\{\s*\"base_url\": "
        ),
        ("the output of `conda list`", EXPORT),
    ),
)
# A line of `conda list --export` (name=version=build), after its comments; it has no other separator.
EXPORTED = re.compile(r"(?:[ \t\r]*(?:#[^\n]*)?\n)*[\w.-]+=[\w.!+*]+=\w+\s*(?:\n|$)")
LISTED = re.compile(r"^@EXPLICIT\s*$", re.MULTILINE)
LOCKS = ("uv.lock", "pixi.lock")
EXPLICIT = ("a list of conda packages for one platform", EXPORT)


def refuse_other_formats(path: Path, *, file: str, named: bool = False) -> None:
    """Raise ConfigError if the name or the first bytes of a file show that it is not a recipe.

    `named`: the user says which kind it is, so that its name need not.
    """
    found = NAMES.get(path.name.lower())
    regular = exists(path) and path.is_file()
    if found is None and regular:
        found = _guess_by_content(path)
    lock = path.name in LOCKS or (regular and is_explicit(path))
    if found is None and not lock and not named:
        found = SUFFIXES.get(path.suffix.lower())
    if found is not None and not exists(path):
        found = None  # read_text reports it
    if found is not None:
        message = f"'{file}' is {found[0]}, not a recipe"
        raise make_config_error(
            "recipe-format", message, at=Location(file=file), fix=found[1].format(file=shlex.quote(file))
        )
    if regular and path.suffix.lower() not in KNOWN_SUFFIXES and not named and not lock:
        message = f"the name '{file}' does not say which kind of recipe this is"
        fix = "rename it: .yml for a conda environment, .txt for pip requirements; or give --input-kind"
        raise make_config_error("recipe-format", message, at=Location(file=file), fix=fix)


def _guess_by_content(path: Path) -> tuple[str, str] | None:
    return _guess_by_head(_read_head(path), suffix=path.suffix.lower())


def _read_head(path: Path) -> bytes:
    """The first bytes of a file, none where it cannot be read: read_text reports it. A pipe could keep one waiting."""
    if not (exists(path) and path.is_file()):
        return b""
    try:
        with path.open("rb") as stream:
            return stream.read(4096)
    except OSError:
        return b""


def refuse_other_contents(head: bytes, *, file: str) -> None:
    """Raise ConfigError if the first bytes of standard input show that it is not a recipe."""
    found = _guess_by_head(head, suffix=PIP_SUFFIXES[0])
    if found is not None:
        message = f"'{file}' is {found[0]}, not a recipe"
        raise make_config_error("recipe-format", message, at=Location(file=file), fix=found[1].format(file="FILE"))


def _guess_by_head(head: bytes, *, suffix: str) -> tuple[str, str] | None:
    for magic, found in MAGIC.items():
        if head.startswith(magic):
            return found
    text = head.decode("utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "replace")
    for form, found in TEXTS:
        if form.match(text):
            return found
    if LISTED.search(text):
        return None
    if EXPORTED.match(text) or (suffix in PIP_SUFFIXES and "# This file may be used to create an environment" in text):
        return EXPLICIT
    return None


def is_explicit(path: Path) -> bool:
    """Whether a file is a list of addresses of conda packages."""
    return LISTED.search(_read_head(path).decode("utf-8", "replace")) is not None


def refuse_other_tables(tree: Table, *, file: str) -> None:
    """Raise ConfigError if the keys of a YAML file are those of another format."""
    keys = {name.raw for name, _ in tree.entries}
    for wanted, (what, fix) in TABLES.items():
        if keys.issuperset(wanted) and "dependencies" not in keys:
            message = f"'{file}' is {what}, not a recipe"
            raise make_config_error("recipe-format", message, at=Location(file=file), fix=fix)
