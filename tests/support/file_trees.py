"""Trees of files as rows that several readers of a squashfs must agree on: the disk, ours, and those of others."""

from __future__ import annotations

import hashlib
import os
import random
import re
import stat
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from builder.sif.merge import merge
from builder.sif.reader import Reader
from builder.sif.sif import PARTITION, SQUASHFS, SYSTEM, add_object, make_empty_sif, write_header
from builder.sif.squashfs import BLOCK_DEVICE, DEVICE, FIFO, FILE, FOLDER, LINK, SOCKET, Squashfs

PAGE = 4096
LARGE = 300  # names in a folder

TYPES = {
    FOLDER: stat.S_IFDIR, FILE: stat.S_IFREG, LINK: stat.S_IFLNK, BLOCK_DEVICE: stat.S_IFBLK, DEVICE: stat.S_IFCHR,
    FIFO: stat.S_IFIFO, SOCKET: stat.S_IFSOCK,
}  # fmt: skip
LETTERS = {"d": stat.S_IFDIR, "-": stat.S_IFREG, "l": stat.S_IFLNK, "b": stat.S_IFBLK, "c": stat.S_IFCHR}
LETTERS |= {"p": stat.S_IFIFO, "s": stat.S_IFSOCK}
LINE = re.compile(r"(.)(.{9}) (\d+)/(\d+) +(?:(\d+)|(\d+), *(\d+)) \d{4}-\d\d-\d\d \d\d:\d\d squashfs-root(/.*)?")


class Row(NamedTuple):
    """What a reader says of one path."""

    mode: int  # with the type
    owner: int
    group: int
    time: int
    size: int  # of a file
    target: str
    device: tuple[int, int] | None
    content: str  # digest of a file
    attributes: tuple[tuple[str, bytes], ...]


Tree = dict[str, Row]


def on_disk(root: Path) -> Tree:
    """A folder as the system shows it, also one on which a file system is mounted."""
    found: Tree = {}
    for path in (root, *paths_below(root)):
        with suppress(FileNotFoundError):  # overlayfs lists names that a lower folder hides, and finds no file there
            found[f"/{path.relative_to(root)}" if path != root else "/"] = _row(path)
    return found


def paths_below(root: Path) -> list[Path]:
    """Every path below a folder; the targets of links may be longer than a path can be."""
    return [Path(folder, name) for folder, folders, names in os.walk(root) for name in (*folders, *names)]


def _row(path: Path) -> Row:
    seen = path.lstat()
    regular, link = stat.S_ISREG(seen.st_mode), stat.S_ISLNK(seen.st_mode)
    special = stat.S_ISCHR(seen.st_mode) or stat.S_ISBLK(seen.st_mode)
    names: list[str] = []
    with suppress(OSError):  # a link or a pipe has none that a user can set
        names = sorted(os.listxattr(path, follow_symlinks=False))
    return Row(
        mode=seen.st_mode,
        owner=seen.st_uid,
        group=seen.st_gid,
        time=int(seen.st_mtime),
        size=seen.st_size if regular else 0,
        target=str(path.readlink()) if link else "",
        device=(os.major(seen.st_rdev), os.minor(seen.st_rdev)) if special else None,
        content=hashlib.sha256(path.read_bytes()).hexdigest() if regular else "",
        attributes=tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in names),
    )


def by_us(image: Path, *, offset: int = 0) -> Tree:
    """The same by our own reader, which also finds each path: in a large folder each twentieth, as it reads from the
    first name on."""
    found: Tree = {}
    names: Counter[str] = Counter()
    with image.open("rb") as source:
        reader = Reader(source, offset=offset)
        for file in list(reader.list_files()):
            content = hashlib.sha256(b"".join(reader.read_blocks(file))).hexdigest() if file.kind == FILE else ""
            above = file.path.rpartition("/")[0]
            names[above] += 1
            if names[above] <= LARGE or names[above] % 20 == 0:
                assert reader.find(file.path) == file
            found[file.path] = Row(
                mode=TYPES[file.kind] | file.mode, owner=file.owner, group=file.group, time=file.time,
                size=file.size if file.kind == FILE else 0, target=file.target, device=file.device, content=content,
                attributes=tuple(sorted(reader.read_attributes(file).items())),
            )  # fmt: skip
    return found


def by_pysquashfsimage(image: Path, *, offset: int = 0) -> Tree:
    """The same by PySquashfsImage; it reads no extended attributes into memory."""
    from PySquashfsImage import SquashFsImage  # of the tests with engines alone

    found: Tree = {}
    with SquashFsImage.from_file(str(image), offset) as whole:
        for file in whole:
            special = file.is_char_device or file.is_block_device
            content = file.read_bytes() if file.is_file else b""
            found[file.path] = Row(
                mode=file.mode, owner=file.uid, group=file.gid, time=file.time,
                size=file.size if file.is_file else 0, target=file.readlink() if file.is_symlink else "",
                device=(file.major, file.minor) if special else None,
                content=hashlib.sha256(content).hexdigest() if file.is_file else "", attributes=(),
            )  # fmt: skip
    return found


def by_unsquashfs(image: Path, *, offset: int = 0) -> Tree:
    """The same by `unsquashfs -lln` and `-cat`: no times in seconds, and no names with line breaks."""
    base = ["unsquashfs", "-o", str(offset)]
    output = subprocess.run([*base, "-lln", image], check=True, capture_output=True).stdout
    found: Tree = {}
    for line in os.fsdecode(output).split("\n"):
        match = LINE.fullmatch(line)
        if match is None:
            continue
        letter, bits, owner, group, size, major, minor, path = match.groups()
        path, _, target = (path or "/").partition(" -> ") if letter == "l" else (path or "/", "", "")
        content = ""
        if letter == "-":
            words = [*base, "-no-wildcards", "-cat", image, os.fsencode(path[1:])]
            content = hashlib.sha256(subprocess.run(words, check=True, capture_output=True).stdout).hexdigest()
        found[path] = Row(
            mode=LETTERS[letter] | _mode(bits), owner=int(owner), group=int(group), time=0,
            size=int(size) if letter == "-" else 0, target=target,
            device=(int(major), int(minor)) if letter in "bc" else None, content=content, attributes=(),
        )  # fmt: skip
    return found


def _mode(bits: str) -> int:
    mode = sum(0o400 >> at for at, letter in enumerate(bits) if letter not in "-ST")
    return mode | sum(bit for at, bit in {2: 0o4000, 5: 0o2000, 8: 0o1000}.items() if bits[at] in "sStT")


def without(tree: Tree, *names: str) -> Tree:
    """The same without what a reader does not say."""
    nothing = {"time": 0, "attributes": (), "owner": 0, "group": 0}
    return {path: row._replace(**{name: nothing[name] for name in names}) for path, row in tree.items()}


def pack(tree: Path, target: Path, *options: str) -> Path:
    """A squashfs of a folder."""
    words = ["mksquashfs", tree, target, "-noappend", "-quiet", "-no-progress", *options]
    subprocess.run(words, check=True, capture_output=True)
    return target


def merged(target: Path, parts: Sequence[Path]) -> Path:
    """Several squashfs as one, as an image has it: each part begins a page."""
    with ExitStack() as stack, target.open("w+b") as file:
        first, *more = [Squashfs(stack.enter_context(part.open("rb"))) for part in parts]
        begins, end = [], -(-parts[0].stat().st_size // PAGE) * PAGE
        for part in parts[1:]:
            begins.append(end)
            end = -(-(end + part.stat().st_size) // PAGE) * PAGE
        whole = merge(first, list(zip(more, begins, strict=True)), end=end, time=7)
        for part, begin in zip(parts, (0, *begins), strict=True):
            file.seek(begin)
            file.write(part.read_bytes())
        for begin, content in ((end, whole.tables), (0, whole.superblock)):
            file.seek(begin)
            file.write(content)
        file.flush()
        file.truncate(-(-(end + len(whole.tables)) // PAGE) * PAGE)
    return target


def image_of(path: Path, root: Path) -> Path:
    """A SIF with one root file system."""
    sif = make_empty_sif("x86_64")
    item = add_object(sif, size=root.stat().st_size, extra=PARTITION.pack(SQUASHFS, SYSTEM, sif.arch))
    with path.open("wb") as file:
        file.seek(item.offset)
        file.write(root.read_bytes())
        write_header(file, sif, time=7)
    return path


def plant(root: Path, names: Sequence[str], seed: int, *, devices: bool = False) -> Path:
    """A tree that is decided by its names and a seed; devices take root."""
    dice = random.Random(seed)
    root.mkdir()
    kinds = ["file"] * 5 + [
        "folder",
        "folder",
        "link",
        "hard",
        "pipe",
        "hole",
        *(["device", "gone"] if devices else []),
    ]
    for name in names:
        with suppress(FileExistsError, NotADirectoryError):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(path):
                _plant(path, dice.choice(kinds), dice, root=root)
    for path in (root, *paths_below(root)):
        if devices:
            os.lchown(path, dice.choice([0, 12, 70000]), dice.choice([0, 34]))
        second = dice.randrange(2**31)
        os.utime(path, (second, second), follow_symlinks=False)
    return root


def _plant(path: Path, kind: str, dice: random.Random, *, root: Path) -> None:
    if kind == "file":
        path.write_bytes(dice.randbytes(dice.choice([0, 1, 5000])) + bytes(dice.choice([0, 4096, 131072, 300000])))
        path.chmod(dice.choice([0o644, 0o755, 0o600, 0o4755]))
        if dice.random() < 0.3:
            os.setxattr(path, "user.note", dice.choice([b"", b"same" * 20, dice.randbytes(9)]))
    elif kind == "folder":
        path.mkdir(mode=dice.choice([0o755, 0o700]))
    elif kind == "link":
        path.symlink_to("x" * dice.choice([1, 200, 4000]))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "hole":
        with path.open("wb") as file:
            file.write(b"a")
            file.truncate(dice.choice([1 << 20, (1 << 20) + 7]))
    elif kind in ("device", "gone"):
        number = os.makedev(0, 0) if kind == "gone" else os.makedev(dice.randrange(1, 4000), dice.randrange(70000))
        os.mknod(path, (stat.S_IFCHR if kind == "gone" else stat.S_IFBLK) | 0o600, number)
    else:
        files = sorted(one for one in paths_below(root) if stat.S_ISREG(one.lstat().st_mode))
        if files:
            os.link(dice.choice(files), path)
