"""Translate names and version constraints of conda packages to PyPI, from a curated table only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from builder.model.recipe import CondaSpec, Recipe
from builder.parse.decoder import Decoder
from builder.parse.yaml import parse_yaml, read_text

NAME_TABLE_FILE = Path(__file__).parents[1] / "data" / "conda_names.yaml"

# Packages whose version is that of CUDA.
CUDA_VERSIONS = ("cuda-version", "cuda-toolkit", "cudatoolkit", "cuda", "cuda-runtime")

_CLAUSE = re.compile(r"(==|=|>=|<=|>|<|!=|~=)?\s*([0-9][A-Za-z0-9.!_+-]*?)(\.\*|\*)?")


@dataclass(frozen=True, kw_only=True)
class NameTable:
    """The content of `conda_names.yaml`."""

    source: str
    checked: str
    same: str  # words
    renamed: Mapping[str, str]
    unsure: tuple[str, ...]  # of both, no source confirms these
    other: Mapping[str, str]
    torch_choosers: tuple[str, ...]
    torch_parts: tuple[str, ...]
    bring_torch: tuple[str, ...]
    cuda_libraries: tuple[str, ...]
    import_names: Mapping[str, str]
    not_on_index: Mapping[str, str]
    other_on_index: Mapping[str, str]


@cache
def load_name_table() -> NameTable:
    text = read_text(NAME_TABLE_FILE, what="table of conda names")
    tree = parse_yaml(text, file=str(NAME_TABLE_FILE), bundled=True)
    decoder = Decoder(file=str(NAME_TABLE_FILE))
    table = decoder.decode_table(tree, NameTable, key="") if tree is not None else None
    assert table is not None, decoder.findings
    return table


@cache
def _python_names() -> Mapping[str, str]:
    table = load_name_table()
    names = {name: name for name in table.same.split()} | dict(table.renamed)
    return {str(canonicalize_name(name)): str(canonicalize_name(other)) for name, other in names.items()}


@cache
def find_python_name(conda: str) -> str | None:
    """Find the PyPI name of a conda package; None if it is not known to be a Python package."""
    return _python_names().get(canonicalize_name(conda))


@cache
def is_unsure_name(conda: str) -> bool:
    """Whether no source confirms which Python package a conda package is."""
    return canonicalize_name(conda) in load_name_table().unsure


def find_conda_cuda(recipe: Recipe) -> tuple[CondaSpec, str] | None:
    """Find the dependency that names the CUDA of PyTorch's builds, and the build: pytorch-cuda=12.4 is cu124."""
    for spec in recipe.conda:
        version = re.fullmatch(r"={0,2}(1[0-9])\.([0-9])(?:\.[0-9*]+)*", spec.version)
        if spec.name in (*CUDA_VERSIONS, "pytorch-cuda") and version:
            return spec, f"cu{version[1]}{version[2]}"
        built = re.search(r"cuda_?(1[0-9])\.?([0-9])", spec.build)
        if find_python_name(spec.name) == "torch" and built:
            return spec, f"cu{built[1]}{built[2]}"
    return None


@cache
def is_cuda_library(conda: str) -> bool:
    """Whether a conda package serves CUDA builds only; full exports of an environment list many of them."""
    return any(matches(conda, pattern) for pattern in load_name_table().cuda_libraries)


def to_specifier(version: str) -> str | None:
    """Convert a conda version constraint to PEP 440; "" for any version, None if there is no equivalent.

    `=1.26` becomes `==1.26.*` and `=1.26.4` becomes `==1.26.4`: conda's single = matches a prefix, and a release with
    three numbers hardly ever has a fourth.
    """
    text = version.strip()
    if text in ("", "*"):
        return ""
    if "|" in text:
        return None
    clauses = [_clause(part.strip()) for part in text.split(",")]
    if any(clause is None for clause in clauses):
        return None
    joined = ",".join(clause for clause in clauses if clause)
    try:
        SpecifierSet(joined)
    except InvalidSpecifier:
        return None
    return joined


def _clause(part: str) -> str | None:
    match = _CLAUSE.fullmatch(part)
    if match is None:
        return None
    operator, number, star = match.groups()
    if operator in (None, "=", "=="):
        fuzzy = star or (operator in (None, "=") and number.count(".") < 2)
        return f"=={number}.*" if fuzzy else f"=={number}"
    if star:
        return f"{operator}{number}.*" if operator == "!=" else f"{operator}{number}"
    return f"{operator}{number}"


def matches(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern of the tables; most patterns need only a comparison."""
    start, star, rest = pattern.partition("*")
    if rest or "?" in pattern or "[" in pattern:
        return fnmatchcase(name, pattern)
    return name.startswith(start) if star else name == start
