"""Which wheel of several fits a Python, a processor and a glibc best: by the tags in their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

# Spellings from before PEP 600, by the glibc they stand for. https://peps.python.org/pep-0600/
OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
OLDEST = {"x86_64": 5, "aarch64": 17}


def list_platforms(arch: str, *, glibc: str) -> Iterator[str]:
    """Yield the platform tags that a glibc supports, the newest first."""
    for minor in range(int(glibc.partition(".")[2].partition(".")[0]), OLDEST[arch] - 1, -1):
        yield f"manylinux_2_{minor}_{arch}"
        if minor in OLD_NAMES:
            yield f"{OLD_NAMES[minor]}_{arch}"
    yield f"linux_{arch}"


@lru_cache(maxsize=16)
def order_tags(python: str, arch: str, glibc: str) -> dict[Tag, int]:
    """Return every tag that fits, with its rank: the lowest is the best."""
    major, minor = (int(part) for part in python.split(".")[:2])
    names = list(list_platforms(arch, glibc=glibc))
    tags = [
        *cpython_tags((major, minor), platforms=names),
        *compatible_tags((major, minor), interpreter=f"cp{major}{minor}", platforms=names),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def choose_wheel(file_names: Iterable[str], *, python: str, arch: str, glibc: str) -> str | None:
    """Return the wheel that fits best, None if none fits; of equal ones the last build."""
    known = order_tags(python, arch, glibc)
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
