"""Our reader of squashfs against the disk, squashfs-tools and PySquashfsImage, for all that mksquashfs can write."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.file_trees import Tree, by_pysquashfsimage, by_unsquashfs, by_us, on_disk, pack, plant, without

from builder.sif.pack import find_packer
from builder.sif.reader import Reader
from builder.sif.sif import read_sif
from builder.sif.squashfs import SquashfsError

pytestmark = pytest.mark.engines

MEGABYTE = 1 << 20
PACKED = [
    ("-comp", "gzip"),
    ("-comp", "gzip", "-b", "4K", "-noI", "-noF", "-noX"),
    ("-comp", "gzip", "-b", "1M", "-no-fragments"),
    ("-comp", "gzip", "-Xcompression-level", "1", "-Xstrategy", "huffman_only", "-tailends"),
    ("-comp", "lzma"),
    ("-comp", "lzo"),
    ("-comp", "lzo", "-Xalgorithm", "lzo1x_1", "-b", "64K"),
    ("-comp", "xz"),
    ("-comp", "xz", "-Xbcj", "x86", "-Xdict-size", "50%", "-b", "16K"),
    ("-comp", "lz4"),
    ("-comp", "lz4", "-Xhc", "-b", "256K", "-no-exports"),
    ("-comp", "zstd"),
    ("-comp", "zstd", "-Xcompression-level", "1", "-b", "1M", "-always-use-fragments"),
    ("-comp", "zstd", "-noI", "-noD", "-no-duplicates"),
    ("-comp", "zstd", "-no-sparse", "-nopad"),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of file that an ordinary user can make."""
    root = tmp_path_factory.mktemp("trees") / "tree"
    plant(root, [f"d{row % 7}/{'e/' * (row % 5)}n{row}" for row in range(120)], 1)
    many = root / "many"
    many.mkdir()
    for row in range(3000):
        (many / f"a-name-that-is-rather-long-{row:05}").write_text("" if row % 3 else str(row))
    (root / ("l" * 255)).write_text("a long name")
    (root / "empty").mkdir()
    (root / "odd").mkdir()
    (root / "odd" / os.fsdecode(b"\xff\xfe not UTF-8")).write_text("x")
    (root / "line\nbreak -> x").write_text("y")
    (root / "é\x1b[2J").symlink_to("\x1b[31m")
    for size in (4095, 4096, 4097, 131071, 131072, 131073, 3 * MEGABYTE + 1):
        (root / f"size-{size}").write_bytes(os.urandom(size // 2) + bytes(size - size // 2))
        os.setxattr(root / f"size-{size}", "user.long", b"the same value, kept once " * 50)
        os.setxattr(root / f"size-{size}", "user.own", str(size).encode())
    os.setxattr(many, "user.folder", b"\0\xff")
    with socket.socket(socket.AF_UNIX) as end:
        before = Path.cwd()
        os.chdir(root)  # the path of a socket has at most 108 characters
        end.bind("socket")
        os.chdir(before)
    return root


DEVICES = ("-p", "dev c 620 5 6 136 200", "-p", "disk b 660 0 7 259 1", "-p", "gone c 000 0 0 0 0")
MORE = ("-p", "big b 600 0 0 4095 1048575", "-p", "d1 m 2770 9 70000")  # `unsquashfs -lln` cuts such numbers off


def clear(tree: Tree) -> Tree:
    """Without the names that `unsquashfs -lln` cannot write on one line."""
    return {path: row for path, row in tree.items() if "\n" not in path}


@pytest.mark.parametrize("options", PACKED, ids=" ".join)
def test_a_squashfs_is_read_as_it_was_packed(options: tuple[str, ...], tree: Path, tmp_path: Path) -> None:
    image = pack(tree, tmp_path / "x.sqfs", *options)
    found, expected = by_us(image), on_disk(tree)
    assert {path for path in {*found, *expected} if found.get(path) != expected.get(path)} == set()


@pytest.mark.parametrize("options", PACKED[::2], ids=" ".join)
def test_devices_and_owners_are_read_as_unsquashfs_does(options: tuple[str, ...], tree: Path, tmp_path: Path) -> None:
    image = pack(tree / "d1", tmp_path / "x.sqfs", *options, *DEVICES)
    found, theirs = by_us(image), by_unsquashfs(image)
    assert clear(without(found, "time", "attributes")) == theirs
    assert found["/dev"][:3] + found["/dev"][6:7] == (0o20620, 5, 6, (136, 200))
    with image.open("rb") as source:
        assert [file.path for file in Reader(source).list_files() if file.whiteout] == ["/gone"]


@pytest.mark.parametrize("options", [("-comp", "gzip"), ("-comp", "xz"), ("-comp", "zstd", "-b", "64K")], ids=" ".join)
def test_pysquashfsimage_reads_the_same(options: tuple[str, ...], tree: Path, tmp_path: Path) -> None:
    image = pack(tree, tmp_path / "x.sqfs", *options, *DEVICES, *MORE, "-e", "odd")  # it takes names in UTF-8 alone
    assert by_pysquashfsimage(image) == without(by_us(image), "attributes")


NAMES = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "d", "long" * 60, "é", "x y", "-o", "[*]"]), min_size=1, max_size=4).map(
        "/".join
    ),
    max_size=25,
    unique=True,
)


@given(names=NAMES, seed=st.integers(min_value=0, max_value=2**32))
@settings(max_examples=30, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
def test_three_readers_agree_on_what_we_pack(names: list[str], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, image = Path(folder, "tree"), Path(folder, "x.sqfs")
        plant(root, names, seed)
        packer = find_packer(zstd=bool(seed % 2), time=7)
        packer.pack([root], image, keep_modes=True)
        found = by_us(image)
        # What a build packs has one owner, one time and no attributes.
        expected = without(on_disk(root), "time", "owner", "group", "attributes")
        assert without(found, "time") == expected
        assert {(row.time, row.owner, row.group, row.attributes) for row in found.values()} == {(7, 0, 0, ())}
        assert by_unsquashfs(image) == without(found, "time")
        assert by_pysquashfsimage(image) == found


def test_the_base_image_is_read_alike_by_all(base_sif: Path) -> None:
    offset = read_sif(base_sif).system.offset
    found = by_us(base_sif, offset=offset)
    assert len(found) > 5000
    assert by_pysquashfsimage(base_sif, offset=offset) == without(found, "attributes")


@pytest.mark.parametrize(("cut", "message"), [(0.3, "cut short"), (0.999, "cut short")])
def test_a_squashfs_that_was_cut_off_is_refused(cut: float, message: str, tree: Path, tmp_path: Path) -> None:
    image = pack(tree, tmp_path / "x.sqfs", "-comp", "zstd", "-nopad")
    with image.open("r+b") as file:
        file.truncate(int(image.stat().st_size * cut))
    with pytest.raises(SquashfsError, match=message):
        by_us(image)
