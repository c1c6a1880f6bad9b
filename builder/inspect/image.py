"""Reads an image of ours or of others: a SIF, a squashfs, a folder, a docker-archive. Nothing of it is run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from builder.inspect import package_databases as read
from builder.inspect.filesystems import (
    FILE_LIMIT,
    TOTAL_LIMIT,
    Archive,
    Folder,
    Squashfs,
    Tree,
    no_unsquashfs,
    read_all,
)
from builder.inspect.sif_objects import (
    DATA_JSON,
    INSPECT,
    LAYERS,
    MAGIC,
    OVERLAY,
    SBOM,
    SIGNATURE,
    SQUASHFS,
    SYSTEMS,
    Sif,
    SifError,
    arch_of,
    layers_of,
    parse_sif,
    signer_of,
    use_of,
    word_of,
)
from builder.inspect.statements import Reader, Said
from builder.model.contents import Contents, ImageKind, Part, Signature
from builder.model.finding import ConfigError, Finding, Place
from builder.model.text import is_there, shown
from builder.sif.archive import ArchiveError, Bounds, Plain, Stream, is_archive, members, small_files
from builder.sif.bounded import open_file
from builder.system.process import which
from builder.system.publish import size_of

SQUASHFS_MAGIC = b"hsqs"
COMPRESSIONS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}
MANY = 500  # layers
ROOT = ("usr", "bin", "opt", "var/lib")  # a root file system has one of them, one that can be run of the first two
RUNNABLE = "give the path of a SIF, a squashfs file or a folder with an image in it"
KINDS = "a SIF, a squashfs file, a folder with an image in it or a docker-archive"


@dataclass(kw_only=True)
class Seen:
    """What an image's own format says, and the trees in which its files are."""

    kind: ImageKind
    arch: str = ""
    parts: list[Part] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    sbom: bool = False
    unknown: list[str] = field(default_factory=list)
    reader: Reader = field(default_factory=Reader)


def read_contents(image: Path, *, environment: Mapping[str, str]) -> Contents:
    """Read what is inside an image; raises ConfigError where it is none, ToolError without squashfs-tools."""
    if not is_there(image):
        raise _fault("image-missing", f"the image '{shown(str(image), limit=400)}' does not exist", image)
    try:
        size = size_of(image)
        seen = _seen(image.absolute(), size=size, environment=environment)
        files = read_all(seen.trees)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise _fault("image-unreadable", f"the image cannot be read: {reason}", image) from None
    contents = Contents(
        image=shown(image.name or str(image), limit=200), kind=seen.kind, size=size, arch=seen.arch,
        parts=tuple(seen.parts), signatures=tuple(seen.signatures), sbom=seen.sbom,
    )  # fmt: skip
    return _told(contents, seen, files)


def check_image(image: Path) -> None:
    """Raise ConfigError where a path is no image that an engine could run: a file by its first bytes."""
    if image.is_dir():
        if any((image / name).is_dir() for name in ROOT[:2]):
            return
    else:
        with open_file(image) as file:
            head = file.read(64)
        # An executable text before the SIF's own head is its launcher; Apptainer runs an ext3 image, too.
        if head[32:42] == MAGIC or head[:4] == SQUASHFS_MAGIC or _is_ext(image):
            return
        if is_archive(image):
            fix = "convert it first: `recipe convert SITE ARCHIVE`"
            raise _fault("image-foreign", f"'{shown(image.name)}' is an archive, and no image", image, fix=fix)
    raise _fault("image-foreign", f"'{shown(image.name)}' is {_looks(image)}, and no image", image, fix=RUNNABLE)


def check_archive(archive: Path) -> None:
    """Raise ConfigError where a file does not begin as what `docker save` writes."""
    if is_archive(archive):
        return
    fix = "give the file that `docker save` wrote"
    raise _fault("image-foreign", f"'{shown(archive.name)}' is {_looks(archive)}, and no archive", archive, fix=fix)


def _is_ext(image: Path) -> bool:
    """Whether a file begins with the superblock of ext2 to ext4 (magic number at 1024 + 56)."""
    with open_file(image) as file:
        return bytes(file.read(1082))[1080:1082] == b"\x53\xef"


def _looks(path: Path) -> str:
    """What a file seems to be, in a word or two."""
    if path.is_dir():
        return "a folder"
    with open_file(path) as file:
        head = bytes(file.read(4096))
    if not head:
        return "an empty file"
    if head[32:42] == MAGIC:
        return "a SIF"
    return "a file of another kind" if b"\x00" in head else "a text"


def _seen(image: Path, *, size: int, environment: Mapping[str, str]) -> Seen:
    if image.is_dir():
        return _folder(image, environment=environment)
    with open_file(image) as file:
        head = file.read(64)
        if head[32:42] == MAGIC:
            try:
                sif = parse_sif(file, size=size)
            except SifError as error:
                raise _fault("image-unreadable", f"the SIF is not sound: {error}", image) from None
            return _sif(image, sif, file=file, environment=environment)
    if head[:4] == SQUASHFS_MAGIC:
        seen = Seen(kind="squashfs")
        _squashfs(seen, image, offset=0, size=size, name=image.name, word="squashfs", environment=environment)
        return seen
    if is_archive(image):
        return _archive(image)
    raise _fault("image-foreign", f"'{shown(image.name)}' is no image that can be read here", image)


def _sif(image: Path, sif: Sif, *, file: Any, environment: Mapping[str, str]) -> Seen:
    seen = Seen(kind="sif", arch=arch_of(sif), sbom=any(item.kind == SBOM for item in sif.objects))
    systems = [item for item in sif.objects if use_of(item) in SYSTEMS]
    overlays = [item for item in sif.objects if use_of(item) == OVERLAY]
    names = {item.number: word_of(item) for item in sif.objects}
    for item in sif.objects:
        name = shown(item.label) or f"object {item.number}"
        if item in systems[:1] or item in overlays[:MANY]:
            continue
        seen.parts.append(Part(name=name, kind=word_of(item), size=item.size))
        if item.kind == SIGNATURE:
            number = item.link & 0x0FFFFFFF
            covers = f"group {number}" if item.link & 0xF0000000 else f"{names.get(number, 'object')} ({number})"
            seen.signatures.append(Signature(covers=covers, fingerprint=signer_of(item)))
        elif item.kind == DATA_JSON and item.label == INSPECT and item.size <= FILE_LIMIT:
            file.seek(item.offset)
            attributes = read.table(file.read(item.size)).get("data", {})
            own = attributes.get("attributes", {}) if isinstance(attributes, dict) else {}
            seen.labels |= read.label_table(own.get("labels") if isinstance(own, dict) else {})
    for item in (*systems[:1], *overlays[:MANY]):
        name = shown(item.label) or f"object {item.number}"
        if item.partition and item.partition[0] == SQUASHFS:
            _squashfs(
                seen, image, offset=item.offset, size=item.size, name=name, word=word_of(item), environment=environment
            )
        else:
            seen.parts.append(Part(name=name, kind=word_of(item), size=item.size))
            seen.unknown.append(f"{name}: what is in a partition of kind '{word_of(item)}' cannot be read")
    if any(item.label == LAYERS for item in sif.objects):
        # They lie in a partition, whose size is that of all of them.
        seen.parts += [Part(name=shown(one.title), kind="layer", size=one.size) for one in layers_of(image, sif)[:MANY]]
    if not systems:
        seen.unknown.append("the SIF has no partition with a root file system (an OCI-SIF has blobs instead)")
    return seen


def _squashfs(
    seen: Seen, image: Path, *, offset: int, size: int, name: str, word: str, environment: Mapping[str, str]
) -> None:
    with image.open("rb") as file:
        file.seek(offset)
        block = file.read(96)
    compression = COMPRESSIONS.get(int.from_bytes(block[20:22], "little"), "unknown")
    seen.parts.append(Part(name=shown(name), kind=word, size=size, compression=compression))
    if which("unsquashfs", env=environment) is None:
        raise no_unsquashfs()
    tree = Squashfs(image=image, offset=offset, environment=environment, reader=seen.reader)
    if block[:4] == SQUASHFS_MAGIC and tree.list():
        seen.trees.append(tree)
    else:
        seen.unknown.append(f"{shown(name)}: unsquashfs could not list it (damaged, or compressed with {compression})")


def _folder(image: Path, *, environment: Mapping[str, str]) -> Seen:
    """A folder of Tykky's has a container and a squashfs in it; else it is a root file system."""
    seen = Seen(kind="folder")
    inner = [path for path in (image / "container.sif", image / "img.sqfs") if path.is_file()]
    for path in inner:
        below = _seen(path.resolve(), size=path.stat().st_size, environment=environment)
        seen.arch = seen.arch or below.arch
        seen.parts += [replace(part, name=f"{path.name}: {part.name}") for part in below.parts]
        seen.signatures += below.signatures
        seen.trees += below.trees
        seen.labels |= below.labels
        seen.unknown += below.unknown
    if not inner:
        if not any((image / name).is_dir() for name in ROOT):
            message = f"'{shown(image.name)}' is a folder, and no image: it has none of {', '.join(ROOT)}"
            raise _fault("image-foreign", message, image, fix=RUNNABLE)
        tree = Folder(root=image, reader=seen.reader)
        tree.list()
        seen.trees.append(tree)
    return seen


def _archive(image: Path) -> Seen:
    """Two ways through the archive: what describes the image may lie behind its layers."""
    seen = Seen(kind="docker-archive")
    try:
        with open_file(image) as file:
            about = small_files(Plain(file, Bounds()))
            first = _first(about.get("manifest.json"))
            config = read.table(about.get(str(first.get("Config", "")), b""))
            inner = config.get("config")
            seen.labels = read.label_table(inner.get("Labels") if isinstance(inner, dict) else {})
            seen.arch = read.word(config.get("architecture"))
            names = first.get("Layers")
            layers = [str(name) for name in names[:MANY]] if isinstance(names, list) else []
            if layers:
                _layers(seen, Plain(file, Bounds()), layers)
            else:  # a root file system by itself
                seen.parts.append(Part(name="rootfs", kind="layer", size=image.stat().st_size))
                seen.trees.append(_layer(seen, Plain(file, Bounds()), name="rootfs", room=TOTAL_LIMIT))
    except ArchiveError as error:
        seen.unknown.append(f"the archive cannot be read to its end: {shown(str(error))}")
    return seen


def _layers(seen: Seen, archive: Stream, names: Sequence[str]) -> None:
    """Every layer where it comes; those of equal content are in an archive once."""
    trees: dict[str, Archive] = {}
    sizes: dict[str, int] = {}
    for member, content in members(archive):
        if member.regular and member.name in names:
            room = TOTAL_LIMIT - sum(sum(tree.files.values()) for tree in trees.values())
            sizes[member.name] = member.size
            trees[member.name] = _layer(seen, content, name=member.name, room=room)
    for name in names:
        if name in trees:
            seen.parts.append(Part(name=shown(name), kind="layer", size=sizes[name]))
            seen.trees.append(trees[name])
        else:
            seen.unknown.append(f"the layer '{shown(name)}' is missing")


def _layer(seen: Seen, content: Stream, *, name: str, room: int) -> Archive:
    tree = Archive(reader=seen.reader)
    try:
        tree.take(content, room=room)
    except ArchiveError as error:
        seen.unknown.append(f"the layer '{shown(name)}' cannot be read to its end: {shown(str(error))}")
    return tree


def _first(manifest: bytes | None) -> Mapping[str, Any]:
    """The first image of a docker-archive's manifest."""
    tree = read.table(b'{"images": ' + (manifest or b"[]") + b"}").get("images")
    first = tree[0] if isinstance(tree, list) and tree else {}
    return first if isinstance(first, dict) else {}


def _told(contents: Contents, seen: Seen, files: Mapping[str, Said]) -> Contents:
    """What the files say."""
    said = list(files.values())
    builds = [one.torch for one in said if one.torch is not None]
    labels = seen.labels | dict(files[read.LABELS].labels if read.LABELS in files else {})
    systems = [found for path in read.RELEASES if path in files and (found := files[path].release) is not None]
    distribution = f"{systems[0].get('ID', '')} {systems[0].get('VERSION_ID', '')}".strip() if systems else ""
    base = (files[read.RECORD].base if read.RECORD in files else "") or _base(labels)
    return replace(
        contents, labels=labels, base=base, distribution=distribution,
        packages=read.without_twins(package for one in said for package in one.packages), torch=tuple(builds),
        unknown=(*seen.unknown, *(one.unknown for one in said if one.unknown)),
    )  # fmt: skip


def _base(labels: Mapping[str, str]) -> str:
    named = labels.get("org.opencontainers.image.base.name", "")
    return named or labels.get("org.label-schema.usage.singularity.deffile.from", "")


def _fault(code: str, message: str, image: Path, *, fix: str = f"give the path of {KINDS}") -> ConfigError:
    at = Place(file=shown(os.fspath(image), limit=400))
    return ConfigError(Finding(code=code, message=message, at=at, fix=fix))
