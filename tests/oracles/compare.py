"""Compare the GPU tables with what a source says: one line for each difference."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from builder.parse.driver_tables import load_driver_table
from builder.parse.gpu_tables import TorchRelease, load_torch_table
from oracles.formats import Published, Release

OLDEST_CUDA = 11  # of the drivers' table


def compare(published: Published) -> Iterator[str]:
    """Yield what differs, and at the end what was not compared."""
    rows = {row.torch: row for row in load_torch_table().releases}
    unknown = [one.torch for one in published.releases if one.torch not in rows]
    for release in published.releases:
        if release.torch in rows:
            yield from _compare_release(release, rows[release.torch])
    yield from _compare_drivers(published)
    yield from _compare_targets(published)
    tokens = {*load_torch_table().tokens}
    if published.indexes:
        yield from (f"index {token}: here, and not there" for token in sorted(tokens - published.indexes))
    if unknown:
        yield f"# not compared, not in the tables: {', '.join(unknown)}"


def _compare_release(release: Release, row: TorchRelease) -> Iterator[str]:
    for name in ("torchvision", "torchaudio"):
        there = getattr(release, name)
        if there and there not in (getattr(row, name), *row.also.get(name, ()), *row.conda.get(name, ())):
            yield f"torch {row.torch}: {name} is {getattr(row, name)} here, {there} there"
    if release.pythons and release.pythons != {*row.pythons}:
        yield f"torch {row.torch}: Pythons are {', '.join(row.pythons)} here, {_join(release.pythons)} there"
    known = {"cuda": ("cu", row.cuda), "rocm": ("rocm", row.rocm)}
    for kind, (prefix, builds) in known.items():
        if builds is None or kind in row.unsure or (not builds and Version(row.torch) < Version("2")):
            continue
        there = {build for build in release.builds if build.startswith(prefix)}
        if missing := there - {*builds}:
            yield f"torch {row.torch}: {_join(missing)} there, and not here"
        if more := {*builds} - there - {*row.unannounced} if release.whole and there else set():
            yield f"torch {row.torch}: {_join(more)} here, and not there"


def _compare_drivers(published: Published) -> Iterator[str]:
    least = {row.major: row.min_driver for row in load_driver_table().cuda_majors}
    for token, driver in sorted(published.drivers.items()):
        major = int(token.removeprefix("cu")[:-1])
        ours = least.get(major)
        if major < OLDEST_CUDA or token == "cu110":  # it came before minor-version compatibility
            continue
        if ours is None:
            yield f"driver for {token}: {driver} there, and no row here"
        elif not _same_driver(ours, driver):
            yield f"driver for {token}: {ours} here, {driver} there"


def _same_driver(one: str, other: str) -> bool:
    """Whether two drivers are the same, as far as both are given: 580 and 580.65.06."""
    pairs = zip(Version(one).release, Version(other).release, strict=False)
    return all(a == b for a, b in pairs)


def _compare_targets(published: Published) -> Iterator[str]:
    """Compare the gfx targets of a ROCm with those of the newest release of torch that is built for it."""
    table = load_torch_table()
    for token, there in sorted(published.gfx.items()):
        releases = [row.torch for row in table.releases if token in (row.rocm or ())]
        short = ".".join(releases[-1].split(".")[:2]) if releases else ""
        row = next((row for row in table.gfx if row.torch == short), None)
        if row is None:
            continue
        later = row.gfx_from_rocm6.split() if Version(token.removeprefix("rocm")) >= Version("6") else []
        here = {*row.gfx.split(), *later}
        unsure = {*row.unsure}
        missing, more = there - here - unsure, here - there - unsure
        if missing:
            yield f"gfx of {token}, torch {short}: {_join(missing)} there, and not here"
        if more:
            yield f"gfx of {token}, torch {short}: {_join(more)} here, and not there"


def _join(words: set[str] | frozenset[str]) -> str:
    return ", ".join(sorted(words))
