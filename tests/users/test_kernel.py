"""What the kernel shows of a squashfs that was packed, read or merged by us: root mounts it, and every path agrees."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.file_trees import Tree, by_us, image_of, merged, on_disk, pack, paths_below, plant

from builder.layers.container_steps import find_whiteouts

ADMIN = 21  # CAP_SYS_ADMIN of linux/capability.h
# The kernel has no lzma, and reads less than 4 GiB of it anyway.
PACKED = [
    ("-comp", "gzip"),
    ("-comp", "gzip", "-b", "4K", "-no-fragments", "-noI"),
    ("-comp", "lzo", "-b", "1M"),
    ("-comp", "xz", "-Xbcj", "x86"),
    ("-comp", "lz4", "-Xhc"),
    ("-comp", "zstd"),
    ("-comp", "zstd", "-b", "256K", "-always-use-fragments", "-no-exports"),
]
NAMES = [f"d{row % 5}/{'e/' * (row % 4)}n{row % 23}" for row in range(70)]
PATHS = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=3).map("/".join), max_size=20, unique=True
)


def _may_mount() -> bool:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return bool(int(status.split("CapEff:")[1].split()[0], 16) >> ADMIN & 1)


pytestmark = pytest.mark.skipif(not _may_mount(), reason="this root may not mount file systems (CAP_SYS_ADMIN)")


@contextmanager
def mounted(kind: str, source: Path | str, options: str) -> Iterator[Path]:
    """A mounted file system."""
    folder = Path(tempfile.mkdtemp(prefix="recipe-mounted-"))
    try:
        subprocess.run(["mount", "-t", kind, "-o", options, source, folder], check=True)
        try:
            yield folder
        finally:
            subprocess.run(["umount", folder], check=True)
    finally:
        folder.rmdir()


@contextmanager
def laid(folders: Sequence[Path]) -> Iterator[Path]:
    """Folders as overlayfs shows them, the lowest first."""
    with mounted("overlay", "overlay", f"ro,lowerdir={':'.join(map(str, reversed(folders)))}") as shown:
        yield shown


@pytest.fixture(scope="module")
def many() -> Iterator[tuple[Path, Tree]]:
    """A tree of every kind of file with a large folder, and what the disk says of it."""
    with tempfile.TemporaryDirectory(prefix="recipe-kernel-") as folder:
        tree = plant(Path(folder, "tree"), NAMES, 3, devices=True)
        (tree / "many").mkdir()
        for row in range(2000):
            (tree / "many" / f"a-name-that-is-rather-long-{row:05}").touch()
        os.setxattr(tree / "many", "security.note", b"\0\1")
        os.setxattr(tree / "many", "trusted.note", b"x" * 3000)
        yield tree, on_disk(tree)


@pytest.mark.parametrize("options", PACKED, ids=" ".join)
def test_the_kernel_shows_what_our_reader_does(options: tuple[str, ...], many: tuple[Path, Tree], shared: Path) -> None:
    tree, expected = many
    image = pack(tree, shared / "x.sqfs", *options)
    found = by_us(image)
    with mounted("squashfs", image, "loop,ro") as shown:
        assert on_disk(shown) == found
    assert found == expected


@pytest.mark.parametrize("options", PACKED, ids=" ".join)
def test_the_kernel_shows_a_merged_image_as_overlayfs_its_parts(options: tuple[str, ...], shared: Path) -> None:
    _compare(shared, [NAMES, NAMES[::2], NAMES[1::3]], seed=5, options=options)


@given(stack=st.lists(PATHS, min_size=2, max_size=4), seed=st.integers(min_value=0, max_value=2**32))
@settings(max_examples=40, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_stack_of_layers_merges_as_overlayfs_shows_it(stack: list[list[str]], seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="recipe-kernel-") as folder:
        _compare(Path(folder), stack, seed=seed, options=("-comp", "zstd" if seed % 2 else "gzip"))


def _compare(folder: Path, stack: Sequence[Sequence[str]], *, seed: int, options: tuple[str, ...]) -> None:
    trees = [plant(folder / f"tree-{row}", names, seed + row, devices=True) for row, names in enumerate(stack)]
    for path in paths_below(trees[0]):
        if stat.S_ISCHR(path.lstat().st_mode):
            path.unlink()  # the lowest has nothing to delete
    # Only the lowest of an image has extended attributes.
    parts = [
        pack(tree, folder / f"{row}.sqfs", *options, *(["-no-xattrs"] if row else [])) for row, tree in enumerate(trees)
    ]
    image = merged(folder / "whole.sqfs", parts)
    found = by_us(image)
    with mounted("squashfs", image, "loop,ro") as shown:
        assert on_disk(shown) == found
    for tree in trees[1:]:
        for path in [tree, *paths_below(tree)]:
            for name in os.listxattr(path, follow_symlinks=False):
                os.removexattr(path, name, follow_symlinks=False)
    with laid(trees) as shown:
        assert on_disk(shown) == found


def test_what_overlayfs_removed_and_replaced_is_so_in_an_image(shared: Path) -> None:
    """An upper folder that the kernel wrote: whiteouts, and folders that hide what is below (opaque)."""
    base = plant(shared / "base", NAMES, 9)
    (base / "replaced" / "below").mkdir(parents=True)
    (base / "replaced" / "below" / "old").write_text("old")
    (base / "replaced" / "file").write_text("old")
    (base / "kept").write_text("kept")
    lowest = pack(base, shared / "base.sqfs", "-comp", "zstd")
    image = image_of(shared / "base.sif", lowest)
    with mounted("tmpfs", "tmpfs", "size=64M") as memory:
        for name in ("upper", "work"):
            (memory / name).mkdir()
        options = f"lowerdir={base},upperdir={memory}/upper,workdir={memory}/work"
        with mounted("overlay", "overlay", options) as shown:
            shutil.rmtree(shown / "replaced")
            (shown / "replaced" / "below").mkdir(parents=True)
            (shown / "replaced" / "below" / "new").write_text("new")
            shutil.rmtree(shown / "d1")
            (shown / "d2" / "added").write_text("added")
            expected = on_disk(shown)
        upper = shared / "upper"
        subprocess.run(["cp", "-a", memory / "upper", upper], check=True)
    assert "trusted.overlay.opaque" in os.listxattr(upper / "replaced")
    words = find_whiteouts(upper, image)
    layer = pack(upper, shared / "upper.sqfs", "-comp", "zstd", "-no-xattrs", *words)
    whole = merged(shared / "whole.sqfs", [lowest, layer])
    with mounted("squashfs", whole, "loop,ro") as shown:
        found = on_disk(shown)
    assert found == by_us(whole)
    assert found == expected
