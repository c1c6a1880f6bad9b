"""Compiled files that would be endless work: each is refused in words, or read, within seconds."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Iterator

import pytest
from support.made_elf import BUNDLE, bundle, compressed, elf, fatbin, packed

from builder.audit.binary import read_binary
from builder.audit.content import Memory

MANY = 2 << 20


@pytest.fixture(autouse=True)
def within_seconds() -> Iterator[None]:
    """Of the processor's time: the cores may be busy with other work."""
    started = time.process_time()
    yield
    assert time.process_time() - started < 10


def overlapping() -> bytes:
    """Sections that each are the whole file."""
    whole = bytearray(elf(sections={f".hip_fatbin{row}": bytes(16) for row in range(2000)}))
    (table,), (count,) = struct.unpack_from("<Q", whole, 40), struct.unpack_from("<H", whole, 60)
    for row in range(1, count - 1):
        struct.pack_into("<QQ", whole, table + 64 * row + 24, 0, len(whole))
    return bytes(whole)


def filled(section: str, piece: bytes) -> bytes:
    return elf(sections={section: piece * (MANY // len(piece))})


TINY = b"CCOB" + struct.pack("<HHIQ", 1, 0, 9, 0) + zlib.compress(b"x")
SYCL = "__CLANG_OFFLOAD_BUNDLE__sycl-spir64_gen"
CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "many tiny bundles": (lambda: filled(".hip_fatbin", TINY), "overlap"),
    "words of bundles": (lambda: filled(".hip_fatbin", BUNDLE), "overlap"),
    "words of containers": (lambda: filled(".nv_fatbin", b"\x50\xed\x55\xba"), "too many"),
    "different targets": (
        lambda: elf(
            sections={".nv_fatbin": fatbin(*(("ptx", 10 + row % 90, "", f"8.{row // 90}") for row in range(1800)))}
        ),
        "too much",
    ),
    "sections": (overlapping, "sections overlap"),
    "versions": (lambda: elf(glibc=["GLIBC_2.17"] * 60_000), "versions do not end"),
}  # fmt: skip


@pytest.mark.property
@pytest.mark.parametrize("case", list(CASES))
def test_endless_work_is_refused(case: str) -> None:
    make, reason = CASES[case]
    found = read_binary("x.so", Memory(make()))
    assert found is not None
    assert reason in found.fault


def test_what_unpacks_to_much_is_read_at_its_beginning() -> None:
    code = packed(bundle("gfx90a") + bytes(8 << 20), version=2, zstd=True)
    images = dict.fromkeys((f"{SYCL}{row}" for row in range(20)), compressed(b"!<arch>\n" + bytes(32 << 20)) * 20)
    found = read_binary("x.so", Memory(elf(sections={".hip_fatbin": code, **images})))
    assert found is not None
    assert ({str(one) for one in found.code}, found.fault) == ({"gfx90a", "intel_gpu"}, "")


def test_a_sound_file_with_many_small_bundles_is_no_bomb() -> None:
    """A library of ROCm has hundreds, packed to some kilobytes each."""
    targets = ("gfx90a", "gfx942", "gfx1100")
    small = packed(bundle(*targets) + bytes(range(256)) * 16, version=2, zstd=True)
    found = read_binary("x.so", Memory(elf(sections={".hip_fatbin": (small + bytes(-len(small) % 4096)) * 3000})))
    assert found is not None
    assert ({str(one) for one in found.code}, found.fault) == (set(targets), "")


def test_names_that_nearly_are_runtimes() -> None:
    found = read_binary("x.so", Memory(elf(sections={".rodata": b"lib" * MANY + b"\0libcuda.so.1\0"})))
    assert found is not None
    assert found.opened == ("libcuda.so.1",)
