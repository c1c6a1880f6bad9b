"""Reading and writing SIF files; that engines agree is in tests/engines."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import pytest
from support.rows import rows

from builder.inspect.sif_objects import SBOM, SIGNATURE, plan_object_writes
from builder.layers.cache import CacheEntry
from builder.layers.image_file import Layer, write_image
from builder.sif.errors import AlteredError
from builder.sif.sif import (
    DESCRIPTOR,
    HEADER,
    INSPECT,
    MAGIC,
    PARTITION,
    SQUASHFS,
    SYSTEM,
    Object,
    Sif,
    SifError,
    add_layer,
    copy_file,
    copy_range,
    list_layers,
    read_sif,
    write_header,
)

ROOT = b"root file system" * 1000


def base_image(
    path: Path, *, total: int = 48, arch: bytes = b"02\0", id_: bytes = bytes(range(16)), time: int = 7
) -> Path:
    """An image with a system partition, as an engine writes it: a random id and the time of the build."""
    data = -(-(4096 + total * DESCRIPTOR.size) // 4096) * 4096
    item = Object(
        kind=0x4004, number=1, group=0xF0000001, link=0, offset=data, size=len(ROOT), padded=len(ROOT),
        extra=PARTITION.pack(SQUASHFS, SYSTEM, arch),
    )  # fmt: skip
    sif = Sif(
        launch=b"#!/usr/bin/env run-singularity\n", arch=arch, total=total, descriptors=4096,
        reserved=total * DESCRIPTOR.size, data=data, data_size=0, free=48, modified=0, objects=[item],
    )  # fmt: skip
    with path.open("wb") as file:
        file.seek(data)
        file.write(ROOT)
        write_header(file, sif, time=time)
        file.seek(48)
        file.write(id_)
    return path


def layer(path: Path, content: bytes, *, fresh: bool = False) -> Layer:
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    entry = CacheEntry(kind="layers", key="k", path=path, sha256=digest, size=len(content), title="t")
    return Layer(entry=entry, fresh=fresh)


@pytest.mark.parametrize("fresh", [False, True])
def test_layers_lie_over_a_base_that_is_as_it_was(fresh: bool, tmp_path: Path) -> None:
    base = base_image(tmp_path / "base.sif")
    layers = [layer(tmp_path / "a", b"a" * 5000, fresh=fresh), layer(tmp_path / "b", b"b" * 4096, fresh=fresh)]
    before = base.read_bytes()
    write_image(base, layers, tmp_path / "x.sif", time=9)
    assert base.read_bytes() == before
    sif, data = read_sif(tmp_path / "x.sif"), (tmp_path / "x.sif").read_bytes()
    assert [data[item.offset : item.offset + item.size] for item in (sif.system, *sif.overlays)] == [
        ROOT, b"a" * 5000, b"b" * 4096,
    ]  # fmt: skip
    assert [item.number for item in sif.objects] == [1, 2, 3]
    assert all(item.offset % 4096 == 0 for item in sif.overlays)
    assert [found.size for found in list_layers(tmp_path / "x.sif", sif)] == [5000, 4096]
    assert {item.partition[2] for item in sif.objects if item.partition} == {b"02\0"}


def test_an_image_says_nothing_of_who_made_its_base_and_when(tmp_path: Path) -> None:
    one = base_image(tmp_path / "one.sif", id_=os.urandom(16), time=1)
    other = base_image(tmp_path / "other.sif", id_=os.urandom(16), time=2**40)
    for base in (one, other):
        write_image(base, [layer(tmp_path / "a", b"a")], base.with_suffix(".out"), time=9)
    assert one.read_bytes() != other.read_bytes()
    assert one.with_suffix(".out").read_bytes() == other.with_suffix(".out").read_bytes()
    for base in (one, other):
        with base.open("r+b") as file:
            write_header(file, read_sif(base), time=9)
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("content", [b"a" * 4999, b"a" * 4999 + b"b", b""])
def test_a_layer_that_was_altered_never_gets_into_an_image(content: bytes, tmp_path: Path) -> None:
    base = base_image(tmp_path / "base.sif")
    good = layer(tmp_path / "a", b"a" * 5000)
    good.entry.path.write_bytes(content)
    with pytest.raises(AlteredError):
        write_image(base, [good], tmp_path / "x.sif", time=9)


def test_an_edited_image_has_new_records_and_no_signatures(tmp_path: Path) -> None:
    base = base_image(tmp_path / "base.sif")
    write_image(base, [], tmp_path / "1.sif", time=9, metadata=b"{1}")
    write_image(tmp_path / "1.sif", [], tmp_path / "2.sif", time=9, metadata=b"{22}")
    named = [item for item in read_sif(tmp_path / "2.sif").objects if item.label == INSPECT]
    assert [item.size for item in named] == [4]
    data = (tmp_path / "2.sif").read_bytes()
    assert data[named[0].offset :][:4] == b"{22}"


@pytest.mark.parametrize("kind", [SBOM, SIGNATURE])
def test_what_is_true_of_the_base_alone_is_left_out(kind: int, tmp_path: Path) -> None:
    base = base_image(tmp_path / "base.sif")
    with base.open("r+b") as file:
        for at, data in plan_object_writes(read_sif(base), kind=kind, name="x", content=b"of the base", extra=b""):
            file.seek(at)
            file.write(data)
    assert kind in [item.kind for item in read_sif(base).objects]
    write_image(base, [layer(tmp_path / "a", b"a")], tmp_path / "1.sif", time=9)
    assert kind not in [item.kind for item in read_sif(tmp_path / "1.sif").objects]


@rows(
    ("content", "reason"),
    [
        (b"", "not a SIF"),
        (b"hsqs" * 100, "not a SIF"),
        (bytes(32) + MAGIC + b"02\0" + bytes(200), "version"),
        (bytes(32) + MAGIC + b"01\0" + bytes(200), "damaged"),
    ],
)
def test_what_is_no_sif_is_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(SifError, match=reason):
        read_sif(tmp_path / "x")


@pytest.mark.parametrize("size", [HEADER.size, 5000, 40000])
def test_an_image_that_is_cut_short_is_refused(size: int, tmp_path: Path) -> None:
    base = base_image(tmp_path / "base.sif")
    with base.open("r+b") as file:
        file.truncate(size)
    with pytest.raises(SifError, match="cut short"):
        read_sif(base)


def test_a_full_table_takes_no_more(tmp_path: Path) -> None:
    sif = read_sif(base_image(tmp_path / "base.sif", total=2))
    add_layer(sif, size=1)
    with pytest.raises(SifError, match="can take no more"):
        add_layer(sif, size=1)


def test_the_architecture_is_the_bases(tmp_path: Path) -> None:
    sif = read_sif(base_image(tmp_path / "base.sif", arch=b"04\0"))
    assert sif.machine == "aarch64"
    assert add_layer(sif, size=1).partition == (1, 4, b"04\0")


def test_files_are_copied_from_any_file_system_to_any_other(tmp_path: Path) -> None:
    """Between two kinds of them the kernel does not: EXDEV of copy_file_range(2)."""
    content = bytes(range(256)) * 9000
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as memory:
        memory.write(content)
        memory.flush()
        source, target = Path(memory.name), tmp_path / "target"
        with source.open("rb") as part, target.open("w+b") as file:
            assert copy_file(part, file) == len(content)
        assert target.read_bytes() == content
        with source.open("rb") as part, target.open("r+b") as file:
            assert copy_range(part, file, start=100, size=2_000_000, to=7) == 2_000_000
            assert copy_range(part, file, start=len(content) - 5, size=9, to=0) == 5  # it ends before
        expected = content[-5:] + content[5:7] + content[100:2_000_100]
        assert target.read_bytes()[: len(expected)] == expected
