"""What others publish about the names of conda packages, compared with `builder/data/conda_names.yaml`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

import yaml
from packaging.utils import canonicalize_name

from builder.resolve.conda_names import find_python_name, load_name_table

# Without Python metadata of their own, each for a reason that the table gives.
EXPLAINED = ("opencv", "pytorch-gpu", "tzdata")
Names = Mapping[str, frozenset[str]]  # of a conda package: the Python packages in it, none for a package without


def read_parselmouth(text: str) -> Names:
    """Read prefix-dev/parselmouth: what the Python metadata in the packages of a channel says; null for none."""
    found = json.loads(text)
    return {_normalize(name): frozenset(map(_normalize, names or ())) for name, names in found.items()}


def read_grayskull(text: str) -> Names:
    """Read grayskull: conda-forge's name of the Python packages that it calls otherwise."""
    found: dict[str, set[str]] = {}
    for name, row in yaml.safe_load(text).items():
        found.setdefault(_normalize(row["conda_forge"]), set()).add(_normalize(name))
    return {name: frozenset(names) for name, names in found.items()}


def compare_names(names: Names, *, whole: bool) -> Iterator[str]:
    """Yield what differs; a source that is not `whole` says nothing of the names that it does not list."""
    table = load_name_table()
    listed = {_normalize(name) for name in (*table.same.split(), *table.renamed)} - {*EXPLAINED}
    missing = []
    for name in sorted(listed - set(table.unsure)):
        ours = find_python_name(name)
        if name not in names:
            missing.append(name)
        elif ours not in names[name]:
            yield f"{name}: {ours} here, {', '.join(sorted(names[name])) or 'no Python package'} there"
    for name in sorted(map(_normalize, table.other)):
        if names.get(name):
            yield f"{name}: no Python package here, {', '.join(sorted(names[name]))} there"
    if whole and missing:
        yield f"# not listed there: {', '.join(missing)}"


def _normalize(name: str) -> str:
    return str(canonicalize_name(name))


NAME_READERS: Mapping[str, tuple[Callable[[str], Names], bool]] = {
    "parselmouth": (read_parselmouth, True),
    "grayskull": (read_grayskull, False),
}
