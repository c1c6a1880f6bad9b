"""The beginning of an image is copied while later layers are made: each part once, and nothing stays of the rest."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path

import pytest

from builder.layers.cache import CacheEntry
from builder.layers.image_file import Draft, Layer, list_layer_offsets, round_to_page
from builder.sif.errors import AlteredError
from builder.sif.sif import DESCRIPTOR, PARTITION, SQUASHFS, SYSTEM, Object, Sif, write_header
from builder.sif.squashfs import GZIP, NONE, ZSTD, Superblock

START = 36864  # of the root file system


def squashfs(content: bytes, *, compression: int = ZSTD) -> bytes:
    """Something that begins as a squashfs does."""
    size = 96 + len(content)
    head = Superblock(
        inodes=1, time=0, block_size=1 << 17, fragments=0, compression=compression, log=17, flags=0, owners=1, root=0,
        size=size, owner_table=size, attribute_table=NONE, inode_table=96, folder_table=96, fragment_table=96,
    )  # fmt: skip
    return head.to_bytes() + content


def base_of(path: Path, root: bytes) -> Path:
    item = Object(
        kind=0x4004, number=1, group=0xF0000001, link=0, offset=START, size=len(root), padded=len(root),
        extra=PARTITION.pack(SQUASHFS, SYSTEM, b"02\0"),
    )  # fmt: skip
    sif = Sif(
        launch=b"#!/usr/bin/env run-singularity\n", arch=b"02\0", total=48, descriptors=4096,
        reserved=48 * DESCRIPTOR.size, data=START, data_size=0, free=48, modified=0, objects=[item],
    )  # fmt: skip
    with path.open("wb") as file:
        file.seek(START)
        file.write(root)
        write_header(file, sif, time=7)
    return path


def layer_of(path: Path, content: bytes, *, fresh: bool = True, compression: int = ZSTD) -> Layer:
    whole = squashfs(content, compression=compression)
    path.write_bytes(whole)
    digest = hashlib.sha256(whole).hexdigest()
    return Layer(
        entry=CacheEntry(kind="layers", key=path.name, path=path, sha256=digest, size=len(whole), title="t"),
        fresh=fresh,
    )


def parts(target: Path, layers: list[Layer], *, root: bytes) -> list[bytes]:
    """What lies where base and layers are to lie, and what lies behind."""
    data = target.read_bytes()
    begins = [START + begin for begin in list_layer_offsets(layers, begin=round_to_page(len(root)))]
    found = [data[START : START + len(root)]]
    found += [data[begin : begin + layer.entry.size] for begin, layer in zip(begins, layers, strict=False)]
    return [*found, data[begins[-1] :]]


def read(layers: list[Layer]) -> list[bytes]:
    return [layer.entry.path.read_bytes() for layer in layers]


def test_what_was_copied_ahead_is_not_copied_again(tmp_path: Path) -> None:
    root = squashfs(b"root" * 3000)
    base = base_of(tmp_path / "base.sif", root)
    one, two = layer_of(tmp_path / "1", b"one" * 5000), layer_of(tmp_path / "2", b"two" * 999)
    wanted = [root, *read([one, two]), b""]
    with Draft(base, tmp_path / "x.sif") as draft:
        draft.copy_in_background([])
        draft.copy_in_background([one])
        draft.wait_for_file()
        one.entry.path.unlink()  # who read it again would see that
        draft.copy_layers([one, two])
        draft.file.flush()
        assert parts(tmp_path / "x.sif", [one, two], root=root) == wanted


@pytest.mark.parametrize("fresh", [True, False])
def test_layers_that_are_not_wanted_in_the_end_leave_nothing(fresh: bool, tmp_path: Path) -> None:
    root = squashfs(b"root")
    base = base_of(tmp_path / "base.sif", root)
    one, two = layer_of(tmp_path / "1", b"1" * 9000, fresh=fresh), layer_of(tmp_path / "2", b"2" * 70000, fresh=fresh)
    three = layer_of(tmp_path / "3", b"3", fresh=fresh)
    for layers in ([one, three], [three], []):
        with Draft(base, tmp_path / "x.sif") as draft:
            draft.copy_in_background([one, two])
            draft.copy_layers(layers)
            draft.file.flush()
            assert parts(tmp_path / "x.sif", layers, root=root) == [root, *read(layers), b""]


def test_what_goes_wrong_ahead_is_told_when_it_is_needed(tmp_path: Path) -> None:
    base = base_of(tmp_path / "base.sif", squashfs(b"root"))
    good, altered = layer_of(tmp_path / "1", b"1" * 9000), layer_of(tmp_path / "2", b"2" * 9000, fresh=False)
    altered.entry.path.write_bytes(squashfs(b"3" * 9000))
    missing = layer_of(tmp_path / "3", b"3")
    missing.entry.path.unlink()
    with Draft(base, tmp_path / "x.sif") as draft:
        for layers in ([good, altered], [good, missing]):
            draft.copy_in_background(layers)
        draft.wait_for_file()
        with pytest.raises(AlteredError):
            draft.copy_layers([good, altered])
        with pytest.raises(FileNotFoundError):
            draft.copy_layers([good, missing])
        draft.copy_layers([good])


def test_layers_that_are_packed_otherwise_are_not_copied_ahead(tmp_path: Path) -> None:
    root = squashfs(b"root")
    base = base_of(tmp_path / "base.sif", root)
    other = layer_of(tmp_path / "1", b"1" * 9000, compression=GZIP)
    with Draft(base, tmp_path / "x.sif") as draft:
        draft.copy_in_background([])
        draft.copy_in_background([other])
        draft.wait_for_file().flush()
        assert parts(tmp_path / "x.sif", [], root=root) == [root, b""]


@pytest.mark.parametrize("fresh", [True, False])
def test_a_failed_build_does_not_wait_for_a_copy_made_ahead(
    fresh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builder.sif.sif.COPIED", 1 << 20)
    base = base_of(tmp_path / "base.sif", squashfs(b"root"))
    layer, begun = layer_of(tmp_path / "1", bytes(9 << 20), fresh=fresh), threading.Event()
    checks = []

    class Slow(Draft):
        """One that is in the midst of a layer when the build fails."""

        def _check(self) -> None:
            checks.append(1)
            if len(checks) > 5:
                begun.set()
                end = time.monotonic() + 120
                while not self._dropped and time.monotonic() < end:
                    time.sleep(0.001)
            super()._check()

    with Slow(base, tmp_path / "x.sif") as draft:
        draft.copy_in_background([layer])
        assert begun.wait(120)
    assert len(checks) == 6
    assert (tmp_path / "x.sif").stat().st_size < START + layer.entry.size
