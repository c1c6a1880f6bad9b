"""Reads an image of ours or of others: a SIF, a squashfs, a folder, a docker-archive. Nothing of it is run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from builder.inspect import package_databases as databases
from builder.inspect.filesystems import (
    FILE_LIMIT,
    TOTAL_LIMIT,
    ArchiveTree,
    FolderTree,
    LayerTree,
    SquashfsTree,
    Statement,
    StatementReader,
    read_all,
)
from builder.inspect.sif_objects import (
    SBOM,
    SIGNATURE,
    SYSTEMS,
    describe_object,
    get_use,
    name_architecture,
    read_signer,
)
from builder.model.contents import Contents, ImageKind, ImagePart, Signature
from builder.model.finding import ConfigError, Finding, Location
from builder.model.text import exists, sanitize
from builder.sif.archive import ArchiveError, Bounds, FileStream, Stream, is_archive, read_members, read_small_files
from builder.sif.bounded import open_file
from builder.sif.sif import DATA_JSON, INSPECT, LAYERS, MAGIC, OVERLAY, SQUASHFS, Sif, SifError, list_layers, parse_sif
from builder.sif.squashfs import COMPRESSIONS, SquashfsError
from builder.system.publish import measure_image

SQUASHFS_MAGIC = b"hsqs"
MANY = 500  # layers
ROOT = ("usr", "bin", "opt", "var/lib")  # a root file system has one of them, one that can be run of the first two
RUNNABLE = "give the path of a SIF, a squashfs file or a folder with an image in it"
WHOLE = "copy it again, or build it again"
KINDS = "a SIF, a squashfs file, a folder with an image in it or a docker-archive"


@dataclass(kw_only=True)
class ScannedImage:
    """What an image's own format says, and the trees in which its files are."""

    kind: ImageKind
    arch: str = ""
    parts: list[ImagePart] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)
    trees: list[LayerTree] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    sbom: bool = False
    unknown: list[str] = field(default_factory=list)
    unlisted: bool = False  # a file system of it is damaged, or packed in a way that cannot be read here
    reader: StatementReader = field(default_factory=StatementReader)


def read_contents(image: Path) -> Contents:
    """Read what is inside an image; raises ConfigError where it is not an image."""
    if not exists(image):
        from builder.parse.yaml import suggest_path

        fix = suggest_path(image, other=f"give the path of {KINDS}")
        message = f"the image '{sanitize(str(image), limit=400)}' does not exist"
        raise _make_error("image-missing", message, image, fix=fix)
    try:
        size = measure_image(image)
        scan = _scan(image.absolute(), size=size)
        if scan.unlisted and not scan.trees:
            message = f"no file of the image can be read: {scan.unknown[0]}"
            raise _make_error("image-unreadable", message, image, fix=WHOLE)
        files = read_all(scan.trees)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise _make_error("image-unreadable", f"the image cannot be read: {reason}", image) from None
    contents = Contents(
        image=sanitize(image.name or str(image), limit=200), kind=scan.kind, size=size, arch=scan.arch,
        parts=tuple(scan.parts), signatures=tuple(scan.signatures), sbom=scan.sbom,
    )  # fmt: skip
    return _add_statements(contents, scan, files)


def has_torch(image: Path) -> bool:
    """Whether an image may have torch: False only where all of it could be read and none is there."""
    try:
        contents = read_contents(image)
    except ConfigError:
        return True
    names = {package.name.lower() for package in contents.packages if package.kind in ("pip", "conda")}
    return bool(contents.unknown or contents.torch or names & {"torch", "pytorch"})


def has_mpi4py(image: Path) -> bool:
    """Whether an image is known to have mpi4py, of pip or of conda."""
    try:
        packages = read_contents(image).packages
    except ConfigError:
        return False
    return any(package.name.lower() == "mpi4py" for package in packages if package.kind in ("pip", "conda"))


def has_cpu_torch(image: Path) -> bool:
    """Whether each torch of an image is known to be a build for CPUs."""
    try:
        builds = read_contents(image).torch
    except ConfigError:
        return False
    return bool(builds) and not any(build.cuda or build.hip or build.xpu for build in builds)


def check_image(image: Path) -> None:
    """Raise ConfigError where a path is not an image that an engine could run: a file by its first bytes."""
    if image.is_dir():
        if any((image / name).is_dir() for name in ROOT[:2]):
            return
    else:
        with open_file(image) as file:
            head = file.read(64)
            _check_whole(image, file, head=head)
        # An executable text before the SIF's own head is its launcher; Apptainer runs an ext3 image, too.
        if head[32:42] == MAGIC or head[:4] == SQUASHFS_MAGIC or _is_ext(image):
            return
        if is_archive(image):
            fix = "convert it first: `recipe convert SITE ARCHIVE`"
            message = f"'{sanitize(image.name)}' is an archive, and not an image"
            raise _make_error("image-foreign", message, image, fix=fix)
    message = f"'{sanitize(image.name)}' is {_looks(image)}, and not an image"
    raise _make_error("image-foreign", message, image, fix=RUNNABLE)


def _check_whole(image: Path, file: BinaryIO, *, head: bytes) -> None:
    """Raise ConfigError where a SIF or a squashfs ends before what its own header says."""
    size = image.stat().st_size
    try:
        if head[32:42] == MAGIC:
            parse_sif(file, size=size)
        elif head[:4] == SQUASHFS_MAGIC and int.from_bytes(head[40:48], "little") > size:  # bytes_used
            raise SifError("it is cut short")
    except SifError as error:
        message = f"the image '{sanitize(image.name)}' is not sound: {error}"
        raise _make_error("image-unreadable", message, image, fix=WHOLE) from None


def check_archive(archive: Path) -> None:
    """Raise ConfigError where a file does not begin as what `docker save` writes."""
    if is_archive(archive):
        return
    fix = "give the file that `docker save` wrote"
    message = f"'{sanitize(archive.name)}' is {_looks(archive)}, and no archive"
    raise _make_error("image-foreign", message, archive, fix=fix)


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


def _scan(image: Path, *, size: int) -> ScannedImage:
    if image.is_dir():
        return _scan_folder(image)
    with open_file(image) as file:
        head = file.read(64)
        if head[32:42] == MAGIC:
            try:
                sif = parse_sif(file, size=size)
            except SifError as error:
                raise _make_error("image-unreadable", f"the SIF is not sound: {error}", image) from None
            return _scan_sif(image, sif, file=file)
    if head[:4] == SQUASHFS_MAGIC:
        scan = ScannedImage(kind="squashfs")
        _scan_squashfs(scan, image, offset=0, size=size, name=image.name, word="squashfs")
        return scan
    if is_archive(image):
        return _scan_archive(image)
    raise _make_error("image-foreign", f"'{sanitize(image.name)}' is not an image that can be read here", image)


def _scan_sif(image: Path, sif: Sif, *, file: Any) -> ScannedImage:
    scan = ScannedImage(kind="sif", arch=name_architecture(sif), sbom=any(item.kind == SBOM for item in sif.objects))
    systems = [item for item in sif.objects if get_use(item) in SYSTEMS]
    overlays = [item for item in sif.objects if get_use(item) == OVERLAY]
    names = {item.number: describe_object(item) for item in sif.objects}
    for item in sif.objects:
        name = sanitize(item.label) or f"object {item.number}"
        if item in systems[:1] or item in overlays[:MANY]:
            continue
        scan.parts.append(ImagePart(name=name, kind=describe_object(item), size=item.size))
        if item.kind == SIGNATURE:
            number = item.link & 0x0FFFFFFF
            covers = f"group {number}" if item.link & 0xF0000000 else f"{names.get(number, 'object')} ({number})"
            scan.signatures.append(Signature(covers=covers, fingerprint=read_signer(item)))
        elif item.kind == DATA_JSON and item.label == INSPECT and item.size <= FILE_LIMIT:
            file.seek(item.offset)
            attributes = databases.parse_object(file.read(item.size)).get("data", {})
            own = attributes.get("attributes", {}) if isinstance(attributes, dict) else {}
            scan.labels |= databases.parse_labels(own.get("labels") if isinstance(own, dict) else {})
    for item in (*systems[:1], *overlays[:MANY]):
        name = sanitize(item.label) or f"object {item.number}"
        if item.partition and item.partition[0] == SQUASHFS:
            _scan_squashfs(scan, image, offset=item.offset, size=item.size, name=name, word=describe_object(item))
        else:
            scan.parts.append(ImagePart(name=name, kind=describe_object(item), size=item.size))
            scan.unknown.append(f"{name}: what is in a partition of kind '{describe_object(item)}' cannot be read")
    if any(item.label == LAYERS for item in sif.objects):
        # They are parts of a partition, whose size is that of all of them.
        scan.parts += [
            ImagePart(name=sanitize(one.title), kind="layer", size=one.size) for one in list_layers(image, sif)[:MANY]
        ]
    if not systems:
        scan.unknown.append("the SIF has no partition with a root file system (an OCI-SIF has blobs instead)")
    return scan


def _scan_squashfs(scan: ScannedImage, image: Path, *, offset: int, size: int, name: str, word: str) -> None:
    with image.open("rb") as file:
        file.seek(offset)
        block = file.read(96)
    compression = COMPRESSIONS.get(int.from_bytes(block[20:22], "little"), "unknown")
    scan.parts.append(ImagePart(name=sanitize(name), kind=word, size=size, compression=compression))
    tree = SquashfsTree(image=image, offset=offset, reader=scan.reader)
    try:
        tree.list()
        scan.trees.append(tree)
    except SquashfsError as error:
        scan.unknown.append(f"{sanitize(name)}: its files cannot be listed: {error}")
        scan.unlisted = True


def _scan_folder(image: Path) -> ScannedImage:
    """A folder of Tykky's has a container and a squashfs in it; else it is a root file system."""
    scan = ScannedImage(kind="folder")
    inner = [path for path in (image / "container.sif", image / "img.sqfs") if path.is_file()]
    for path in inner:
        below = _scan(path.resolve(), size=path.stat().st_size)
        scan.arch = scan.arch or below.arch
        scan.parts += [replace(part, name=f"{path.name}: {part.name}") for part in below.parts]
        scan.signatures += below.signatures
        scan.trees += below.trees
        scan.labels |= below.labels
        scan.unknown += below.unknown
        scan.unlisted |= below.unlisted
    if not inner:
        if not any((image / name).is_dir() for name in ROOT):
            message = f"'{sanitize(image.name)}' is a folder, and not an image: it has none of {', '.join(ROOT)}"
            raise _make_error("image-foreign", message, image, fix=RUNNABLE)
        tree = FolderTree(root=image, reader=scan.reader)
        tree.list()
        scan.trees.append(tree)
    return scan


def _scan_archive(image: Path) -> ScannedImage:
    """The archive is read twice: its description may follow its layers."""
    scan = ScannedImage(kind="docker-archive")
    try:
        with open_file(image) as file:
            about = read_small_files(FileStream(file, Bounds()))
            first = _find_first_image(about.get("manifest.json"))
            config = databases.parse_object(about.get(str(first.get("Config", "")), b""))
            inner = config.get("config")
            scan.labels = databases.parse_labels(inner.get("Labels") if isinstance(inner, dict) else {})
            scan.arch = databases.to_word(config.get("architecture"))
            names = first.get("Layers")
            layers = [str(name) for name in names[:MANY]] if isinstance(names, list) else []
            if layers:
                _scan_layers(scan, FileStream(file, Bounds()), layers)
            else:  # a root file system by itself
                scan.parts.append(ImagePart(name="rootfs", kind="layer", size=image.stat().st_size))
                tree = _scan_layer(scan, FileStream(file, Bounds()), name="rootfs", room=TOTAL_LIMIT)
                if not (tree.is_root or scan.unknown or "manifest.json" in about):
                    what = f"'{sanitize(image.name)}' is an archive, and not an image: it has none of {', '.join(ROOT)}"
                    raise _make_error("image-foreign", what, image)
                scan.trees.append(tree)
    except ArchiveError as error:
        scan.unknown.append(f"the archive cannot be read to its end: {sanitize(str(error))}")
    return scan


def _scan_layers(scan: ScannedImage, archive: Stream, names: Sequence[str]) -> None:
    """Every layer where it comes; those of equal content are in an archive once."""
    trees: dict[str, ArchiveTree] = {}
    sizes: dict[str, int] = {}
    for member, content in read_members(archive):
        if member.regular and member.name in names:
            room = TOTAL_LIMIT - sum(sum(tree.files.values()) for tree in trees.values())
            sizes[member.name] = member.size
            trees[member.name] = _scan_layer(scan, content, name=member.name, room=room)
    for name in names:
        if name in trees:
            scan.parts.append(ImagePart(name=sanitize(name), kind="layer", size=sizes[name]))
            scan.trees.append(trees[name])
        else:
            scan.unknown.append(f"the layer '{sanitize(name)}' is missing")


def _scan_layer(scan: ScannedImage, content: Stream, *, name: str, room: int) -> ArchiveTree:
    tree = ArchiveTree(reader=scan.reader)
    try:
        tree.take(content, room=room)
    except ArchiveError as error:
        scan.unknown.append(f"the layer '{sanitize(name)}' cannot be read to its end: {sanitize(str(error))}")
    return tree


def _find_first_image(manifest: bytes | None) -> Mapping[str, Any]:
    """The first image of a docker-archive's manifest."""
    tree = databases.parse_object(b'{"images": ' + (manifest or b"[]") + b"}").get("images")
    first = tree[0] if isinstance(tree, list) and tree else {}
    return first if isinstance(first, dict) else {}


def _add_statements(contents: Contents, scan: ScannedImage, files: Mapping[str, Statement]) -> Contents:
    statements = list(files.values())
    builds = [one.torch for one in statements if one.torch is not None]
    labels = scan.labels | dict(files[databases.LABELS].labels if databases.LABELS in files else {})
    systems = [found for path in databases.RELEASES if path in files and (found := files[path].release) is not None]
    distribution = f"{systems[0].get('ID', '')} {systems[0].get('VERSION_ID', '')}".strip() if systems else ""
    base = (files[databases.RECORD].base if databases.RECORD in files else "") or _find_base(labels)
    return replace(
        contents, labels=labels, base=base, distribution=distribution,
        packages=databases.remove_duplicates(package for one in statements for package in one.packages),
        torch=tuple(builds),
        unknown=(*scan.unknown, *(one.unknown for one in statements if one.unknown)),
    )  # fmt: skip


def _find_base(labels: Mapping[str, str]) -> str:
    named = labels.get("org.opencontainers.image.base.name", "")
    return named or labels.get("org.label-schema.usage.singularity.deffile.from", "")


def _make_error(code: str, message: str, image: Path, *, fix: str = f"give the path of {KINDS}") -> ConfigError:
    at = Location(file=sanitize(os.fspath(image), limit=400))
    return ConfigError(Finding(code=code, message=message, at=at, fix=fix))
