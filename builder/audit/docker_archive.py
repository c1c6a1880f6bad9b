"""The ELF files of a docker-archive, layer by layer as they come, or of a tar of a root file system.

Layout: moby's "Docker Image Specification v1.2" (manifest.json) and the OCI image layout, "Whiteouts", read 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ..sif.archive import Bounds, FileStream, Member, Stream, read_members, read_small_files
from ..sif.bounded import BoundsError, open_file, parse_json
from .conda_package import make_roomy_bounds
from .content import ELF, AuditError, Candidate, can_be_elf, unpack_member
from .distribution import Inventory
from .installed import TreeScan, is_metadata_file

LAYERS = 500
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
LINKS = (b"1", b"2")


def read_archive(path: Path) -> Inventory:
    """Every ELF file of an archive; raises OSError, and AuditError for any other file."""
    try:
        with open_file(path) as file:
            names = _list_layers(read_small_files(FileStream(file, Bounds())))
            if not names:
                return _read_layer(FileStream(file, make_roomy_bounds()))[0].make_inventory("image", whole=True)
            found = dict(_read(FileStream(file, make_roomy_bounds()), names))
    except BoundsError as error:
        raise AuditError(str(error)) from None
    tree = TreeScan()
    for name in names:
        if name not in found:
            raise AuditError("a layer of it is missing")
        layer, hidden = found[name]
        tree.apply_layer(layer, hidden)
    return tree.make_inventory("image", whole=True)


def _list_layers(about: dict[str, bytes]) -> list[str]:
    """The layers of the first image, lowest first; none where it is not a saved image."""
    if "manifest.json" not in about:
        return []
    try:
        found = parse_json(about["manifest.json"])
        names = found[0]["Layers"]
    except (ValueError, LookupError, TypeError):
        raise AuditError("its manifest.json is damaged") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) > LAYERS:
        raise AuditError("its manifest.json is damaged")
    return names


def _read(archive: Stream, names: list[str]) -> Iterator[tuple[str, tuple[TreeScan, set[str]]]]:
    for member, content in read_members(archive):
        if member.regular and member.name in names:
            yield member.name, _read_layer(content)


def _read_layer(stream: Stream) -> tuple[TreeScan, set[str]]:
    """What one layer adds, and the paths that it hides in those below."""
    tree, hidden = TreeScan(), set[str]()
    for member, content in read_members(stream):
        path = member.name.removeprefix("./").strip("/")
        above, _, name = path.rpartition("/")
        if name == OPAQUE:
            hidden.add(above)
        elif name.startswith(WHITEOUT):
            hidden.add(f"{above}/{name.removeprefix(WHITEOUT)}".lstrip("/"))
        elif member.kind in LINKS:
            tree.link(path)
        elif member.regular:
            _take(tree, path, member, content)
    return tree, hidden


def _take(tree: TreeScan, path: str, member: Member, content: Stream) -> None:
    is_metadata = is_metadata_file(path)
    if not is_metadata and not can_be_elf(path, member.size):
        return
    head = bytes(content.read(4))
    if is_metadata or head == ELF:
        later = partial(unpack_member, content, size=member.size, head=head)
        tree.take(Candidate(path=path, size=member.size, open=later))
