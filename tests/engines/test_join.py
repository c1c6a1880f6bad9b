"""Several squashfs joined into one, held against what one laid over the other shows; squashfs-tools pack and read."""

from __future__ import annotations

import hashlib
import os
import random
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from recipe_program import run
from support.file_trees import merged

from builder.layers.cache import CacheEntry, hash_file
from builder.layers.image_file import Layer, write_image
from builder.sif.sif import LAYERS, list_layers, read_object, read_sif
from builder.sif.squashfs import SUPERBLOCK, Squashfs, SquashfsError

pytestmark = pytest.mark.engines

MANY = 3000  # names in one folder: more than a short inode can tell
Tree = dict[str, tuple[object, ...]]


def grow(tree: Path, seed: int) -> None:
    """A tree of which half the names are those of another seed: files of all lengths, folders, links of both kinds."""
    dice = random.Random(seed)
    for number in range(60):
        path = tree.joinpath(*(f"d{dice.randrange(4)}" for _ in range(dice.randrange(4))), f"n{number % 45}")
        with suppress(FileExistsError, NotADirectoryError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                continue
            kind = dice.choice(["file", "file", "file", "folder", "link", "hard", "pipe", "hole"])
            if kind == "file":
                path.write_bytes(dice.randbytes(dice.choice([0, 1, 5000, 131072, 262144, 300000])))
                path.chmod(dice.choice([0o644, 0o755, 0o600]))
            elif kind == "folder":
                path.mkdir(mode=dice.choice([0o755, 0o700]))
            elif kind == "link":
                path.symlink_to(f"target-{dice.randrange(9)}")
            elif kind == "pipe":
                os.mkfifo(path)
            elif kind == "hole":
                path.write_bytes(b"a" + bytes(400000) + b"b")
            else:
                files = sorted(one for one in tree.rglob("n*") if one.is_file() and not one.is_symlink())
                if files:
                    os.link(dice.choice(files), path)


def pack(tree: Path, target: Path, *options: str) -> Path:
    """A squashfs; marks of what is gone are words of their own, since only root may make devices."""
    run(["mksquashfs", tree, target, "-noappend", "-quiet", "-no-progress", "-all-root", *options]).expect(0)
    return target


def read(tree: Path) -> Tree:
    """What a folder holds, by path."""
    found: Tree = {}
    for root, folders, names in os.walk(tree):
        for name in (*folders, *names):
            path = Path(root, name)
            seen = path.lstat()
            content: object = ""
            if stat.S_ISREG(seen.st_mode):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            elif stat.S_ISLNK(seen.st_mode):
                content = str(path.readlink())
            link = f"{tree}:{seen.st_ino}" if stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1 else ""
            found[str(path.relative_to(tree))] = (oct(seen.st_mode), int(seen.st_mtime), content, link)
    return found


def shown(tree: Tree) -> tuple[Tree, list[list[str]]]:
    """A tree, and which of its names are one file."""
    links = {str(row[3]) for row in tree.values()} - {""}
    groups = [sorted(path for path, row in tree.items() if row[3] == link) for link in links]
    return {path: row[:3] for path, row in tree.items()}, sorted(group for group in groups if len(group) > 1)


def laid(below: Tree, above: Tree, gone: Sequence[str] = ()) -> Tree:
    """One tree over another, as an overlay file system shows it."""
    hidden = {*gone, *(path for path, row in above.items() if not str(row[0]).startswith("0o40"))}
    folders = {path for path, row in below.items() if str(row[0]).startswith("0o40")}
    hidden |= {path for path in above if path in below and path not in folders}
    kept = {
        path: row for path, row in below.items() if not any(path == one or path.startswith(f"{one}/") for one in hidden)
    }
    return {**kept, **above}


def unpacked(image: Path, folder: Path) -> Path:
    run(["unsquashfs", "-no-progress", "-quiet", "-d", folder, image]).expect(0)
    return folder


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (1, ("-comp", "zstd")),
        (2, ("-comp", "gzip", "-b", "64K")),
        (3, ("-comp", "zstd", "-Xcompression-level", "1", "-b", "256K", "-no-exports")),
        (4, ("-comp", "xz", "-no-fragments")),
        (5, ("-comp", "gzip", "-always-use-fragments", "-noI", "-noD")),
        (6, ("-comp", "zstd", "-no-duplicates", "-no-exports")),
    ],
)
def test_the_whole_is_what_one_over_the_other_shows(seed: int, options: tuple[str, ...], tmp_path: Path) -> None:
    expected: Tree = {}
    parts, gone = [], [(), ("n3", "d0"), ("d1/n7", "d2")]
    for number in range(3):
        tree = tmp_path / f"tree-{number}"
        tree.mkdir()
        grow(tree, seed * 10 + number)
        marked = [path for path in gone[number] if not os.path.lexists(tree / path)]
        words = [word for path in marked if (tree / path).parent.is_dir() for word in ("-p", f"{path} c 000 0 0 0 0")]
        # Attributes stay with the lowest: layers have none.
        if number == 0:
            os.setxattr(tree, "user.note", b"kept")
        parts.append(pack(tree, tmp_path / f"{number}.sqfs", *options, *words, *(["-no-xattrs"] if number else [])))
        expected = laid(expected, read(tree), [path for path in marked if (tree / path).parent.is_dir()])
    whole = merged(tmp_path / "whole.sqfs", parts)
    assert shown(read(unpacked(whole, tmp_path / "found"))) == shown(expected)
    again = merged(tmp_path / "again.sqfs", parts)
    assert again.read_bytes() == whole.read_bytes()
    # What was joined can be joined again.
    more = tmp_path / "more"
    (more / "d3").mkdir(parents=True)
    (more / "d3" / "new").write_text("new")
    parts = [whole, pack(more, tmp_path / "more.sqfs", *options, "-no-xattrs")]
    found = read(unpacked(merged(tmp_path / "twice.sqfs", parts), tmp_path / "twice"))
    assert shown(found) == shown(laid(expected, read(more)))


def test_every_name_of_a_long_listing_is_found(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for tree, names in ((one, range(0, MANY, 2)), (two, range(1, MANY, 2))):
        (tree / "long").mkdir(parents=True)
        for name in names:
            (tree / "long" / f"a-name-that-is-rather-long-{name:05}").write_text(str(name))
    parts = [pack(tree, tree.with_suffix(".sqfs"), "-comp", "zstd", "-no-xattrs") for tree in (one, two)]
    whole = merged(tmp_path / "whole.sqfs", parts)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    run(["squashfuse", whole, mounted]).expect(0)
    try:
        # A name that is asked for is looked up by the index, a listing is not.
        for name in range(MANY):
            assert (mounted / "long" / f"a-name-that-is-rather-long-{name:05}").read_text() == str(name)
        assert not (mounted / "long" / "a-name-that-is-rather-long-01000x").exists()
        assert len(list((mounted / "long").iterdir())) == MANY
    finally:
        run(["fusermount", "-u", mounted]).expect(0)


def test_damage_is_noticed_or_harmless_and_never_a_traceback(tmp_path: Path) -> None:
    trees = [tmp_path / "one", tmp_path / "two"]
    for seed, tree in enumerate(trees):
        tree.mkdir()
        grow(tree, seed)
    good = [pack(tree, tree.with_suffix(".sqfs"), "-comp", "zstd", "-no-xattrs") for tree in trees]
    dice, refused = random.Random(7), 0
    for number in range(200):
        parts = []
        for path in good:
            content = bytearray(path.read_bytes())
            with path.open("rb") as file:
                begin = dice.choice([0, 0, Squashfs(file).head.inode_table])
            end = SUPERBLOCK.size if begin == 0 else len(content)
            content[dice.randrange(begin, end)] = dice.randrange(256)
            parts.append(tmp_path / f"bad-{path.name}")
            parts[-1].write_bytes(content[: dice.choice([len(content), len(content), dice.randrange(len(content))])])
        try:
            merged(tmp_path / f"{number}.out", parts)
        except SquashfsError:
            refused += 1
    assert refused > 100


def as_layer(path: Path) -> Layer:
    entry = CacheEntry(
        kind="layers", key="k", path=path, sha256=hash_file(path), size=path.stat().st_size, title=path.name
    )
    return Layer(entry=entry)


def two_layers(base: Path, folder: Path, *options: str) -> list[Layer]:
    """The upper one takes away a file of the base and one of the lower layer."""
    lower, upper = folder / "lower", folder / "upper"
    (lower / "opt/both").mkdir(parents=True)
    (lower / "opt/both/low").write_text("low\n")
    (lower / "opt/both/lost").write_text("lost\n")
    (upper / "opt/both").mkdir(parents=True)
    (upper / "opt/both/up").write_text("up\n")
    (upper / "etc").mkdir()
    gone = ["-p", "opt/both/lost c 000 0 0 0 0", "-p", "etc/issue c 000 0 0 0 0"]
    packed = [pack(lower, folder / "lower.sqfs", *options, "-no-xattrs")]
    packed.append(pack(upper, folder / "upper.sqfs", *options, "-no-xattrs", *gone))
    assert run(["apptainer", "exec", base, "cat", "/etc/issue"]).code == 0
    return [as_layer(path) for path in packed]


@pytest.mark.parametrize("inside", [True, False])
def test_layers_are_part_of_the_base_or_one_file_system_over_it(inside: bool, base_sif: Path, tmp_path: Path) -> None:
    system = read_sif(base_sif).system
    with base_sif.open("rb") as file:
        head = Squashfs(file, offset=system.offset).head
    compression = {1: "gzip", 6: "zstd"}[head.compression]
    own = ("-comp", compression if inside else "gzip" if compression == "zstd" else "zstd", "-b", str(head.block_size))
    layers = two_layers(base_sif, tmp_path, *own)
    image = tmp_path / "x.sif"
    write_image(base_sif, layers, image, time=7)
    sif, data = read_sif(image), image.read_bytes()
    assert len(sif.overlays) == (0 if inside else 1)
    # Every layer is there, whole, and every byte of the base: of its root file system all but the superblock.
    assert [data[one.offset : one.offset + one.size] for one in list_layers(image, sif)] == [
        layer.entry.path.read_bytes() for layer in layers
    ]
    (told,) = [read_object(image, item) for item in sif.objects if item.label == LAYERS]
    start = system.offset + (SUPERBLOCK.size if inside else 0)
    whole = base_sif.read_bytes()
    assert data[start : system.offset + head.size] == whole[start : system.offset + head.size]
    assert (whole[system.offset : system.offset + SUPERBLOCK.size].hex() in told.decode()) is inside
    script = "cat /opt/both/*; test ! -e /etc/issue && test -e /etc/passwd && python3 -c 'print(1)'"
    assert run(["apptainer", "exec", image, "sh", "-c", script]).expect(0).out == "low\nup\n1\n"
    write_image(base_sif, layers, tmp_path / "y.sif", time=7)
    assert (tmp_path / "y.sif").read_bytes() == data
    if inside:
        # It is an image like any other: layers can be put on it.
        third = tmp_path / "third"
        (third / "opt").mkdir(parents=True)
        (third / "opt/third").write_text("third\n")
        more = as_layer(pack(third, tmp_path / "third.sqfs", *own, "-no-xattrs"))
        write_image(image, [more], tmp_path / "z.sif", time=7)
        out = run(["apptainer", "exec", tmp_path / "z.sif", "sh", "-c", f"{script}; cat /opt/third"]).expect(0).out
        assert out == "low\nup\n1\nthird\n"
