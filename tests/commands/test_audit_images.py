"""The GPU audit of images made here: a SIF with layers, and what a stranger may have made of a squashfs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.bombs import archive, squashfs
from support.made_elf import bundle, compressed, elf, fatbin

from builder.audit.content import AuditError
from builder.audit.images import read_image
from builder.cli.inspect_gpu import read_inventory
from builder.model.finding import ConfigError
from builder.sif.sif import PARTITION, SQUASHFS, SYSTEM, add_layer, add_object, make_empty_sif, write_header

CUDA = elf(needed=["libcudart.so.12"], sections={".nv_fatbin": fatbin(("cubin", 90, "", ""))})
HIP = elf(needed=["libamdhip64.so.6"], sections={".hip_fatbin": bundle("gfx90a")})


def sif(path: Path, system: Path, *layers: Path) -> Path:
    """A SIF of these file systems."""
    image = make_empty_sif("x86_64")
    root = add_object(image, size=system.stat().st_size, extra=PARTITION.pack(SQUASHFS, SYSTEM, image.arch))
    placed = [(root, system), *((add_layer(image, size=layer.stat().st_size), layer) for layer in layers)]
    with path.open("wb") as file:
        write_header(file, image, time=7)
        for item, source in placed:
            file.seek(item.offset)
            file.write(source.read_bytes())
    return path


def targets(image: Path) -> dict[str, list[str]]:
    return {
        binary.path: [str(code) for code in binary.code]
        for one in read_image(image).distributions
        for binary in one.binaries
    }


def test_a_layer_replaces_and_hides(tmp_path: Path) -> None:
    names = ("opt/a.so", "opt/gone.so", "opt/dir/b.so", "c.so")
    system = squashfs(tmp_path / "system.sqfs", dict.fromkeys(names, CUDA))
    hidden = ("-p", "opt/gone.so c 644 0 0 0 0", "-p", "opt/dir c 644 0 0 0 0")
    layer = squashfs(tmp_path / "layer.sqfs", {"opt/a.so": HIP, "opt/new.so": HIP}, *hidden)
    image = sif(tmp_path / "x.sif", system, layer)
    assert targets(image) == {"c.so": ["sm_90"], "opt/a.so": ["gfx90a"], "opt/new.so": ["gfx90a"]}


@pytest.mark.parametrize("words", ["-comp gzip", "-comp zstd", "-comp xz", "-comp lz4", "-noD -noF", "-no-fragments"])
def test_every_packing_gives_the_same(words: str, tmp_path: Path) -> None:
    code = fatbin(("cubin", 80, "", ""))
    large = elf(sections={".text": bytes(range(256)) * 2000, ".nv_fatbin": code, ".zeros": bytes(300_000)})
    small = [f"{row}.so" for row in range(20)]
    files = {"a.so": CUDA, "b/large.so": large + bytes(70_000), "b/text.py": b"x" * 90, **dict.fromkeys(small, HIP)}
    found = targets(squashfs(tmp_path / "x.sqfs", files, *words.split()))
    assert found == {"a.so": ["sm_90"], "b/large.so": ["sm_80"], **{name: ["gfx90a"] for name in small}}


def docker_archive(path: Path, *layers: dict[str, bytes]) -> Path:
    """What `docker save` writes, with the layers before what describes them."""
    files = {f"blobs/sha256/{row}": archive(layer) for row, layer in enumerate(layers)}
    manifest = json.dumps([{"Config": "c.json", "Layers": list(files)}]).encode()
    path.write_bytes(archive({**files, "c.json": b"{}", "manifest.json": manifest}))
    return path


def test_a_docker_archive_by_its_layers(tmp_path: Path) -> None:
    site = "opt/env/lib/python3.12/site-packages"
    below = {"usr/lib/a.so": CUDA, "usr/lib/dir/b.so": CUDA, "usr/lib/c.so": CUDA, "usr/lib/d.so": CUDA}
    above = {
        "usr/lib/a.so": HIP, "usr/lib/.wh.c.so": b"", "usr/lib/dir/.wh..wh..opq": b"", f"{site}/x/e.so": HIP,
        f"{site}/x-1.0.dist-info/RECORD": b"x/e.so,,\n",
    }  # fmt: skip
    found = read_inventory(docker_archive(tmp_path / "x.tar", below, above))
    assert {(one.name, binary.path): str(binary.code[0]) for one in found.distributions for binary in one.binaries} == {
        ("/usr/lib", "usr/lib/a.so"): "gfx90a", ("/usr/lib", "usr/lib/d.so"): "sm_90",
        ("x", f"{site}/x/e.so"): "gfx90a",
    }  # fmt: skip
    assert (found.kind, found.whole) == ("image", True)


@pytest.mark.parametrize("manifest", [b"[]", b"{", b'[{"Layers": 7}]', b'[{"Layers": ["gone"]}]'])
def test_an_archive_whose_manifest_is_damaged(manifest: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(archive({"manifest.json": manifest}))
    with pytest.raises(ConfigError, match=r"manifest|missing"):
        read_inventory(path)


def test_a_folder_of_tykky(tmp_path: Path) -> None:
    system = squashfs(tmp_path / "system.sqfs", {"usr/lib/a.so": CUDA})
    folder = tmp_path / "env"
    folder.mkdir()
    sif(folder / "container.sif", system)
    squashfs(folder / "img.sqfs", {"env/b.so": HIP})
    found = read_inventory(folder)
    assert {binary.path for one in found.distributions for binary in one.binaries} == {"usr/lib/a.so", "env/b.so"}


def test_an_unknown_packing_is_named(tmp_path: Path) -> None:
    path = squashfs(tmp_path / "x.sqfs", {"a.so": CUDA})
    data = bytearray(path.read_bytes())
    data[20] = 9
    path.write_bytes(data)
    with pytest.raises(AuditError, match="number 9"):
        read_image(path)


@pytest.mark.parametrize("content", [b"", b"hsqs", b"#!/bin/sh\n" * 100, compressed(b"x" * 1000)])
def test_what_is_no_image(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.sif"
    path.write_bytes(content)
    with pytest.raises(AuditError):
        read_image(path)
