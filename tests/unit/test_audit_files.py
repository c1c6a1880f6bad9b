"""What the audit reads from compiled files, which are stand-ins (real wheels: tests/commands/test_audit_wheels.py)."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from support.made_elf import AMDGPU, CUDA, bundle, compressed, elf, fatbin, packed, wheel
from support.rows import rows

from builder.audit.binary import Binary, read_binary
from builder.audit.content import Memory
from builder.audit.vendor_rules import find_runtime
from builder.cli.inspect_gpu import read_inventory
from builder.cli.main import run


def read(content: bytes, path: str = "x.so") -> Binary:
    found = read_binary(path, Memory(content))
    assert found is not None
    return found


def code(content: bytes) -> set[str]:
    found = read(content)
    assert found.fault == ""
    return {str(one) for one in found.code}


def test_what_is_linked_and_which_glibc() -> None:
    found = read(
        elf(needed=["libcudart.so.12", "libm.so.6"], soname="liba.so.1", glibc=["GLIBC_2.4", "GLIBC_2.17", "GLIBC_2.9"])
    )
    assert (found.needed, found.soname, found.glibc) == (("libcudart.so.12", "libm.so.6"), "liba.so.1", "2.17")
    assert [(one.vendor, one.major) for one in found.linked] == [("nvidia", 12)]
    assert (found.machine, found.python) == ("x86_64", "")


@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("a.cpython-312-x86_64-linux-gnu.so", "3.12"),
        ("b.cpython-313t-x86_64-linux-gnu.so", "3.13t"),
        ("c.abi3.so", "abi3"),
    ],
)
def test_python_of_an_extension_module(name: str, python: str) -> None:
    assert read(elf(), f"pkg/{name}").python == python


def test_a_text_is_no_elf_file() -> None:
    assert read_binary("x", Memory(b"#!/bin/sh\n" * 10)) is None


def test_names_that_are_opened_when_it_runs() -> None:
    texts = b"\0libcuda.so.1\0libz.so.1\0" + b"x" * (1 << 20) + b"\0libamdhip64.so.6\0"
    assert read(elf(sections={".rodata": texts})).opened == ("libamdhip64.so.6", "libcuda.so.1")
    assert read(elf(needed=["libcuda.so.1"], sections={".rodata": texts})).opened == ()


IMAGES = (("cubin", 80, "", ""), ("cubin", 90, "a", ""), ("cubin", 100, "f", ""), ("ptx", 90, "", "8.4"))
TARGETS = {"sm_80", "sm_90a", "sm_100f", "compute_90"}


@pytest.mark.parametrize("section", [".nv_fatbin", "__nv_relfatbin", ".renamed"])
def test_nvidia_code_by_its_section_or_first_word(section: str) -> None:
    found = read(elf(sections={section: fatbin(*IMAGES) + bytes(24) + fatbin(("cubin", 75, "", ""))}))
    assert {str(one) for one in found.code} == TARGETS | {"sm_75"}
    assert [one.isa for one in found.code if one.kind == "ptx"] == ["8.4"]


def test_code_of_a_file_without_section_headers() -> None:
    sections = {".nv_fatbin": fatbin(*IMAGES), ".hip_fatbin": bundle("gfx90a")}
    assert code(elf(sections=sections, headers=False)) == TARGETS | {"gfx90a"}


def test_several_images_that_are_packed_together() -> None:
    single = fatbin(("cubin", 90, "", ""), ("cubin", 100, "a", ""))[16:]
    first, second = bytearray(single[:64]), bytearray(single[96:160])
    struct.pack_into("<I", first, 4, 0)
    struct.pack_into("<I", second, 4, 2984)
    table = bytes(first) + b"\x48\0\0\0\x24\0\0\0" + bytes(40) + bytes(second)
    head = struct.pack("<HHIQ", 0x100, 0x101, 64 + 8 + len(table), 16) + bytes(48)
    body = head + struct.pack("<II", 2, len(table)) + table + bytes(16)
    whole = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
    assert code(elf(sections={".nv_fatbin": whole})) == {"sm_90", "sm_100a"}


GFX = ("gfx90a:sramecc+:xnack-", "gfx942", "gfx9-4-generic")


@rows("version", [1, 2, 3])
@rows("zstd", [False, True])
def test_packed_amd_bundles(version: int, zstd: bool) -> None:
    more = b"" if version == 1 else bytes(4096) + bundle("gfx1100")
    assert code(elf(sections={".hip_fatbin": packed(bundle(*GFX), version=version, zstd=zstd) + more})) == {
        *GFX, *(() if version == 1 else ("gfx1100",)),
    }  # fmt: skip


def test_amd_bundles_one_behind_the_other() -> None:
    parts = (
        bundle("gfx90a") + bytes(5000) + packed(bundle("gfx942"), version=2, zstd=True) + bytes(70) + bundle("gfx950")
    )
    assert code(elf(sections={".hip_fatbin": parts})) == {"gfx90a", "gfx942", "gfx950"}


def test_device_code_that_is_a_file_by_itself() -> None:
    assert code(elf(machine=CUDA, flags=0x5A | 0x800, abi=7)) == {"sm_90a"}
    assert code(elf(machine=CUDA, flags=0x6006402, abi=8)) == {"sm_100"}
    assert code(elf(machine=AMDGPU, flags=0x3F | 0x200 | 0xC00)) == {"gfx90a:sramecc+:xnack-"}


def archive_for(device: str) -> bytes:
    whole = b"!<arch>\n"
    for name in ("pad_0/", f"64.{device}/"):
        whole += f"{name:16}{0:12}{0:6}{0:6}{644:8}{4:10}`\n".encode() + b"code"
    return whole


def test_several_packed_images_in_one_section() -> None:
    section = b"".join(compressed(archive_for(device)) + bytes(13) for device in ("12.60.7", "20.1.4"))
    found = code(elf(sections={"__CLANG_OFFLOAD_BUNDLE__sycl-spir64_gen": section}))
    assert found == {"12.60.7", "20.1.4"}


def test_sycl_by_the_names_of_its_sections() -> None:
    sections = {f"__CLANG_OFFLOAD_BUNDLE__sycl-{name}": content for name, content in (
        ("spir64", bytes(64)), ("spir64_gen", archive_for("12.60.7")), ("native_cpu", bytes(64)),
    )}  # fmt: skip
    assert code(elf(sections=sections)) == {"spir64", "12.60.7"}


@rows(
    ("name", "vendor", "major"),
    [
        ("libcudart.so.11.0", "nvidia", 11), ("libcudart-d0da41ae.so.11.0", "nvidia", 11),
        ("libcublas.so.13", "nvidia", 13),
        ("libcufft.so.11", "nvidia", None), ("libcuda.so.1", "nvidia", None), ("libamdhip64.so.6", "amd", 6),
        ("libhipblas.so.3", "amd", 7), ("librocblas.so.4", "amd", None), ("libsycl.so.8", "intel", 25),
        ("libze_loader.so.1", "intel", None),
    ],
)  # fmt: skip
def test_runtimes_by_their_names(name: str, vendor: str, major: int | None) -> None:
    found = find_runtime(name)
    assert found is not None
    assert (found.vendor, found.major, found.driver) == (vendor, major, name == "libcuda.so.1")


@rows("name", ["libc.so.6", "libcudax.so.1", "libcudart.py", "../libcudart.so.12", "libsyclone.so.1", "libOpenCL.so.1"])
def test_other_libraries(name: str) -> None:
    assert find_runtime(name) is None


def damaged() -> dict[str, bytes]:
    whole = elf(needed=["liba.so"], glibc=["GLIBC_2.17"], sections={".nv_fatbin": fatbin(*IMAGES)})
    endless = bytearray(elf(glibc=["GLIBC_2.17"]))
    at = endless.find(struct.pack("<HHI", 1, 1, 0)[:4], 176)
    struct.pack_into("<II", endless, at + 8, 16, 0xFFFFFFF0)
    many = bytearray(whole)
    struct.pack_into("<H", many, 56, 0xFFFF)
    rows = bytearray(whole)
    struct.pack_into("<H", rows, 60, 0)
    struct.pack_into("<Q", rows, struct.unpack_from("<Q", rows, 40)[0] + 32, 1 << 40)
    return {"cut": whole[:-40], "versions": bytes(endless), "programs": bytes(many), "sections": bytes(rows)}


@rows("kind", list(damaged()))
def test_a_damaged_file_is_named_in_words(kind: str) -> None:
    assert read(damaged()[kind]).fault


def test_a_container_that_promises_too_much_is_passed_over() -> None:
    lying = bytearray(fatbin(*IMAGES))
    struct.pack_into("<Q", lying, 8, 1 << 60)
    assert code(elf(sections={".nv_fatbin": bytes(lying)})) == set()
    short = bytearray(fatbin(*IMAGES))
    struct.pack_into("<I", short, 16 + 4, 0)  # an entry whose head has no length would be read for ever
    assert code(elf(sections={".nv_fatbin": bytes(short)})) == set()


def test_a_packed_bundle_that_is_no_bundle() -> None:
    bad = packed(bundle("gfx90a"), version=2, zstd=True)[:24] + b"\x28\xb5\x2f\xfd" + b"\xff" * 100
    assert "zstd" in read(elf(sections={".hip_fatbin": bad})).fault


def test_a_closed_folder_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    if not os.geteuid():
        pytest.skip("root may read everything")
    (tmp_path / "closed").mkdir(mode=0)
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "x.so").write_bytes(elf(needed=["libcudart.so.12"]))
    found = read_inventory(tmp_path)
    assert [(one.path, one.reason) for one in found.unread] == [("closed", "permission denied")]
    assert [binary.path for one in found.distributions for binary in one.binaries] == ["open/x.so"]


def test_a_wheel_with_a_damaged_file_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a-1.0-py3-none-any.whl"
    wheel(path, {"a/x.so": elf(needed=["libcudart.so.12"])}, tag="py3-none-any")
    assert run(["inspect", "--gpu", path.name, "--site", "lumi-c"]) in (0, 6)
    content = bytearray(path.read_bytes())
    for place in range(40, 80):
        content[place] ^= 0x55
    path.write_bytes(content)
    capsys.readouterr()
    assert run(["inspect", "--gpu", path.name]) == 0
    assert "not read" in capsys.readouterr().out
    assert run(["inspect", "--gpu", path.name, "--site", "local"]) == 2
    assert f"'{path.name}' is damaged: " in capsys.readouterr().err
    assert run(["inspect", "--gpu", path.name, "--site", "local", "--format", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["ok"] is False
