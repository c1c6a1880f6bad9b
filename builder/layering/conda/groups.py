"""Which conda packages lie in one layer: large ones apart, and those together that have files of the same name."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence

from .client import CondaPackage

LARGE = 50_000_000  # bytes of a package's file: a layer of its own, so that a small pin never packs it again
MOST = 16  # of such layers: each asks py-rattler once
# All others, where they are more than a second's work, lie in several layers: which one is decided by the name alone,
# so that another version of one package, or one package more, packs an eighth of them.
MANY, SHARES = 64_000_000, 8
TOGETHER = "conda, together"


def groups_of(
    packages: Sequence[CondaPackage], *, together: Collection[str] = ()
) -> dict[str, tuple[CondaPackage, ...]]:
    """Packages by the title of their layer, the lowest first; Python goes with small ones, above all others."""
    same = tuple(sorted((one for one in packages if one.name in together), key=lambda package: package.name))
    ordered = sorted((one for one in packages if one.name not in together), key=lambda package: package.name)
    large = sorted((one for one in ordered if one.name != "python"), key=lambda one: -one.size)
    apart = {one.name for one in large[:MOST] if one.size >= LARGE}
    shares = SHARES if sum(one.size for one in ordered if one.name not in apart) >= MANY else 1
    rows: dict[str, list[CondaPackage]] = {}
    for package in ordered:
        share = 0 if package.name == "python" else zlib.crc32(package.name.encode()) % shares
        title = f"conda {package.name}" if package.name in apart else f"conda, share {share}" if share else "conda"
        rows.setdefault(title, []).append(package)
    order = sorted(rows, key=lambda title: (title == "conda", title.startswith("conda,"), title))
    return ({TOGETHER: same} if same else {}) | {title: tuple(rows[title]) for title in order}
