"""Reads an image of ours or of others: a SIF, a squashfs, a folder, a docker-archive. Nothing of it is run."""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from builder.execute.asking import which
from builder.execute.contents import packages as read
from builder.execute.contents.rpm import rpm_packages
from builder.execute.contents.sif import (
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
from builder.execute.contents.trees import (
    FILE_LIMIT,
    TOTAL_LIMIT,
    Archive,
    Folder,
    Squashfs,
    Tree,
    no_unsquashfs,
    read_all,
)
from builder.execute.image.publish import size_of
from builder.model.contents import Contents, ImageKind, Package, Part, Signature
from builder.model.finding import ConfigError, Finding, Place
from builder.model.safe import is_there, shown

SQUASHFS_MAGIC = b"hsqs"
COMPRESSIONS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}
MANY = 500  # layers
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


def _seen(image: Path, *, size: int, environment: Mapping[str, str]) -> Seen:
    if image.is_dir():
        return _folder(image, environment=environment)
    with image.open("rb") as file:
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
    if tarfile.is_tarfile(image):
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
    tree = Squashfs(image=image, offset=offset, environment=environment)
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
        tree = Folder(root=image)
        tree.list()
        seen.trees.append(tree)
    return seen


def _archive(image: Path) -> Seen:
    seen = Seen(kind="docker-archive")
    try:
        with tarfile.open(image) as outer:
            manifest = _member(outer, "manifest.json")
            first = _first(manifest)
            config = read.table(_member(outer, str(first.get("Config", ""))) or b"")
            inner = config.get("config")
            seen.labels = read.label_table(inner.get("Labels") if isinstance(inner, dict) else {})
            seen.arch = read.word(config.get("architecture"))
            names = first.get("Layers")
            layers = [str(name) for name in names[:MANY]] if isinstance(names, list) else []
            if not layers:  # a root file system by itself
                with image.open("rb") as file:
                    _layer(seen, file, name="rootfs", size=image.stat().st_size)
            for name in layers:
                member = _find(outer, name)
                if member is None:
                    seen.unknown.append(f"the layer '{shown(name)}' is missing")
                    continue
                _layer(seen, outer.extractfile(member), name=name, size=member.size)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        seen.unknown.append(f"the archive is damaged: {shown(str(error))}")
    return seen


def _layer(seen: Seen, file: IO[bytes] | None, *, name: str, size: int) -> None:
    tree = Archive()
    room = TOTAL_LIMIT - sum(sum(one.files.values()) for one in seen.trees)
    seen.parts.append(Part(name=shown(name), kind="layer", size=size))
    seen.trees.append(tree)
    try:
        with tarfile.open(fileobj=file) as layer:
            tree.take(layer, room=room)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        seen.unknown.append(f"the layer '{shown(name)}' cannot be read to its end: {shown(str(error))}")


def _find(outer: tarfile.TarFile, name: str) -> tarfile.TarInfo | None:
    try:
        member = outer.getmember(name)
    except KeyError:
        return None
    return member if member.isreg() else None


def _member(outer: tarfile.TarFile, name: str) -> bytes | None:
    member = _find(outer, name)
    file = outer.extractfile(member) if member is not None and member.size <= FILE_LIMIT else None
    return file.read() if file else None


def _first(manifest: bytes | None) -> Mapping[str, Any]:
    """The first image of a docker-archive's manifest."""
    tree = read.table(b'{"images": ' + (manifest or b"[]") + b"}").get("images")
    first = tree[0] if isinstance(tree, list) and tree else {}
    return first if isinstance(first, dict) else {}


def _told(contents: Contents, seen: Seen, files: Mapping[str, bytes | None]) -> Contents:
    """What the files say."""
    found: list[Package] = []
    unknown = list(seen.unknown)
    for path, content in files.items():
        package = read.conda_package(path, content) or read.pip_package(path, content)
        if package is not None and package.name:
            found.append(package)
        if content is None:
            unknown.append(f"{shown(path, limit=200)} could not be read")
        elif read.DPKG.fullmatch(path):
            found += read.deb_packages(content)
        elif read.RPM.fullmatch(path):
            rpms = rpm_packages(content) if path.endswith(".sqlite") else None
            found += rpms or ()
            if rpms is None:
                unknown.append(f"packages of rpm: {path} is not a database that can be read without rpm")
        elif path == read.APK:
            unknown.append("packages of apk (Alpine) are not listed")
    builds = [build for path, content in files.items() if content and (build := read.torch_build(path, content))]
    labels = seen.labels | read.label_table(read.table(files.get(read.LABELS) or b""))
    systems = [read.release(content) for path in read.RELEASES if (content := files.get(path))]
    distribution = f"{systems[0].get('ID', '')} {systems[0].get('VERSION_ID', '')}".strip() if systems else ""
    record = read.table(files.get(read.RECORD) or b"")
    base = read.word(record.get("base")) or _base(labels)
    return replace(
        contents, labels=labels, base=base, distribution=distribution,
        packages=read.without_twins(found), torch=tuple(builds), unknown=tuple(unknown),
    )  # fmt: skip


def _base(labels: Mapping[str, str]) -> str:
    named = labels.get("org.opencontainers.image.base.name", "")
    return named or labels.get("org.label-schema.usage.singularity.deffile.from", "")


def _fault(code: str, message: str, image: Path) -> ConfigError:
    at = Place(file=shown(os.fspath(image), limit=400))
    return ConfigError(Finding(code=code, message=message, at=at, fix=f"give the path of {KINDS}"))
