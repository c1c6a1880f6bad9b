"""The one file of a Python package that an installer would take for a given Python, processor and glibc."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

# Spellings from before PEP 600, by the glibc they stand for. https://peps.python.org/pep-0600/
OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
OLDEST = {"x86_64": 5, "aarch64": 17}


def platforms(arch: str, *, glibc: str) -> Iterator[str]:
    """Platform tags that a glibc serves, the newest first."""
    for minor in range(int(glibc.partition(".")[2].partition(".")[0]), OLDEST[arch] - 1, -1):
        yield f"manylinux_2_{minor}_{arch}"
        if minor in OLD_NAMES:
            yield f"{OLD_NAMES[minor]}_{arch}"
    yield f"linux_{arch}"


@lru_cache(maxsize=16)
def ranks(python: str, arch: str, glibc: str) -> dict[Tag, int]:
    """Every tag that fits, by its rank: the lower the better."""
    major, minor = (int(part) for part in python.split(".")[:2])
    names = list(platforms(arch, glibc=glibc))
    tags = [
        *cpython_tags((major, minor), platforms=names),
        *compatible_tags((major, minor), interpreter=f"cp{major}{minor}", platforms=names),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def best_wheel(file_names: Iterable[str], *, python: str, arch: str, glibc: str) -> str | None:
    """The wheel that fits best, None where none fits; of equals the last build."""
    known = ranks(python, arch, glibc)
    found = []
    for name in file_names:
        try:
            _, _, build, tags = parse_wheel_filename(name)
        except InvalidWheelFilename:
            continue
        fitting = [known[tag] for tag in tags if tag in known]
        if fitting:
            found.append((-min(fitting), build, name))
    return max(found)[2] if found else None
