"""Images that an engine made, without what differs from build to build; that engines agree is in tests/engines."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.sif.errors import LayeringError
from builder.sif.normalise import (
    DATE,
    OCI_CONFIG,
    choose_time,
    find_newest_base_time,
    make_labels_json,
    normalize_image,
)
from builder.sif.sif import (
    DATA_JSON,
    DESCRIPTOR,
    INSPECT,
    PARTITION,
    SQUASHFS,
    SYSTEM,
    Sif,
    add_object,
    read_sif,
    write_header,
)

ROOT = b"root file system" * 500
NEWEST = 1_700_000_000


def made(path: Path, *, date: str, image_id: str, more: str = "") -> Path:
    """An image as an engine makes it: with a date, the id of Docker's image and times of its own."""
    inspect = {"data": {"attributes": {"labels": {DATE: date, "a": "b" + more}}}, "type": "container"}
    parts = [(INSPECT, json.dumps(inspect).encode()), (OCI_CONFIG, json.dumps({"Image": image_id, "Env": []}).encode())]
    sif = Sif(
        launch=b"#!/usr/bin/env run-singularity\n", arch=b"02\0", total=8, descriptors=4096,
        reserved=8 * DESCRIPTOR.size, data=4096 + 8 * DESCRIPTOR.size, data_size=0, free=8, modified=0, objects=[],
    )  # fmt: skip
    with path.open("wb") as file:
        for name, content in parts:
            item = add_object(sif, size=len(content), kind=DATA_JSON, name=name, align=1)
            file.seek(item.offset)
            file.write(content)
        item = add_object(sif, size=len(ROOT), extra=PARTITION.pack(SQUASHFS, SYSTEM, b"02\0"))
        file.seek(item.offset)
        file.write(ROOT)
        write_header(file, sif, time=len(date))
        file.seek(48)
        file.write(os.urandom(16))
    return path


def test_two_images_of_one_content_become_one(tmp_path: Path) -> None:
    one = made(tmp_path / "one.sif", date="Sunday_1_March_2026_1:2:3_UTC", image_id="sha256:" + "a" * 64)
    two = made(tmp_path / "two.sif", date="Wednesday_11_November_2026_11:22:33_UTC", image_id="sha256:" + "b" * 64)
    for path in (one, two):
        normalize_image(path, time=NEWEST)
    assert one.read_bytes() == two.read_bytes()
    sif, data = read_sif(one), one.read_bytes()
    documents = [json.loads(data[item.offset : item.offset + item.size]) for item in sif.objects if not item.partition]
    assert documents[0]["data"]["attributes"]["labels"] == {DATE: "2023-11-14T22:13:20Z", "a": "b"}
    assert documents[1] == {"Env": []}
    assert data[sif.system.offset : sif.system.offset + sif.system.size] == ROOT
    normalize_image(one, time=NEWEST)
    assert one.read_bytes() == data


def test_the_root_file_system_moves_where_the_page_has_changed(tmp_path: Path) -> None:
    """A date that is longer by some letters can put what comes after it on the next page."""
    page = 4096 * 3 - (4096 + 8 * DESCRIPTOR.size)
    empty = made(tmp_path / "x.sif", date="", image_id="")
    room = page - sum(item.size for item in read_sif(empty).objects if not item.partition)
    one = made(tmp_path / "one.sif", date="", image_id="", more="x" * (room - 25))
    two = made(tmp_path / "two.sif", date="y" * 30, image_id="", more="x" * (room - 25))
    assert read_sif(one).system.offset != read_sif(two).system.offset
    for path in (one, two):
        normalize_image(path, time=NEWEST)
        sif, data = read_sif(path), path.read_bytes()
        assert data[sif.system.offset : sif.system.offset + sif.system.size] == ROOT
    assert one.read_bytes() == two.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.sif", "two.sif", "x.sif"]


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"no image")
    with pytest.raises(LayeringError):
        normalize_image(tmp_path / "x", time=1)


# --- the time ---------------------------------------------------------------------------------------------------------


def archive(path: Path, *, history: Sequence[dict[str, object]], layers: Sequence[int]) -> Path:
    """What `docker save` writes: layers with one file each, of a time."""

    def put(tar: tarfile.TarFile, name: str, content: bytes, mtime: int = 0) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mtime = len(content), mtime
        tar.addfile(info, io.BytesIO(content))

    with tarfile.open(path, "w") as tar:
        for number, mtime in enumerate(layers):
            layer = io.BytesIO()
            with tarfile.open(fileobj=layer, mode="w") as inner:
                put(inner, "file", b"x", mtime)
            put(tar, f"{number}/layer.tar", layer.getvalue())
        config = {"history": list(history), "config": {"Labels": {"own": "label"}}}
        put(tar, "config.json", json.dumps(config).encode())
        manifest = [{"Config": "config.json", "Layers": [f"{number}/layer.tar" for number in range(len(layers))]}]
        put(tar, "manifest.json", json.dumps(manifest).encode())
    return path


BASE = [{"created_by": "ADD rootfs"}, {"created_by": "CMD x", "empty_layer": True}, {"created_by": "RUN y"}]
OURS = [{"created_by": "USER 0", "empty_layer": True}, {"created_by": "COPY image/install.sh"}]


def test_the_time_of_what_docker_made_is_that_of_its_base(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", history=[*BASE, *OURS], layers=[5, NEWEST, NEWEST + 99])
    assert find_newest_base_time(path) == NEWEST
    assert choose_time(str(path), environment={}) == NEWEST
    assert choose_time(str(path), environment={"SOURCE_DATE_EPOCH": "7"}) == 7
    assert json.loads(make_labels_json(path, time=NEWEST)) == {
        "own": "label", "org.label-schema.schema-version": "1.0", DATE: "2023-11-14T22:13:20Z",
    }  # fmt: skip


@pytest.mark.parametrize("history", [[], BASE, OURS])
def test_no_time_where_the_base_cannot_be_told_from_the_rest(history: list[dict[str, object]], tmp_path: Path) -> None:
    assert find_newest_base_time(archive(tmp_path / "x.tar", history=history, layers=[5, 6])) is None
    (tmp_path / "no.tar").write_bytes(b"no archive")
    assert find_newest_base_time(tmp_path / "no.tar") is None


def test_the_time_of_a_flat_image_is_that_of_its_base(tmp_path: Path) -> None:
    base = made(tmp_path / "base.sif", date="", image_id="")
    with base.open("r+b") as file:
        write_header(file, read_sif(base), time=NEWEST)
    assert choose_time(str(base), environment={}) == NEWEST
    assert choose_time("docker://debian:12", environment={}) == 315532800
    assert choose_time(str(base), environment={"SOURCE_DATE_EPOCH": "no number"}) is None
