"""What the objects of a SIF are, in words, and one object more; the format itself is in sif/sif.py."""

from __future__ import annotations

import struct

from builder.sif.sif import DATA_JSON, DATA_PARTITION, DESCRIPTOR, GROUP, OVERLAY, SQUASHFS, Object, Sif

DEFINITION, SIGNATURE, SBOM = 0x4001, 0x4005, 0x4009
KINDS = {
    DEFINITION: "definition file",
    0x4002: "environment",
    0x4003: "labels",
    DATA_PARTITION: "partition",
    SIGNATURE: "signature",
    DATA_JSON: "JSON",
    0x4007: "data",
    0x4008: "encryption key",
    SBOM: "SBOM",
    0x400A: "OCI index",
    0x400B: "OCI blob",
}
FILE_SYSTEMS = {SQUASHFS: "squashfs", 2: "ext3", 3: "archive", 4: "raw", 5: "encrypted squashfs"}
SYSTEMS = (1, 2)
USES = {1: "system", 2: "primary system", 3: "data", OVERLAY: "overlay"}
ARCHITECTURES = {"01": "386", "02": "amd64", "03": "arm", "04": "arm64", "06": "ppc64le", "12": "riscv64"}


def name_architecture(sif: Sif) -> str:
    number = sif.arch.rstrip(b"\0").decode("ascii", errors="replace")
    return ARCHITECTURES.get(number, number)


def get_use(item: Object) -> int:
    """What a partition is for; 0 of any other object."""
    return item.partition[1] if item.partition else 0


def describe_object(item: Object) -> str:
    if item.partition is None:
        return KINDS.get(item.kind, f"object of type {item.kind:#x}")
    return f"{USES.get(get_use(item), 'unknown')} {FILE_SYSTEMS.get(item.partition[0], 'file system')}"


def read_signer(item: Object) -> str:
    """The fingerprint of a signature's key, empty where the descriptor has none (keys in PEM files)."""
    entity = item.extra[4:24]
    return entity.hex().upper() if item.kind == SIGNATURE and any(entity) else ""


def plan_object_writes(
    sif: Sif, *, kind: int, name: str, content: bytes, extra: bytes
) -> tuple[tuple[int, bytes], ...]:
    """What has to be written where for one more object in group 1, the content first; empty when there is no room.

    The times are those of the header: the same image and content give the same bytes. It is what `apptainer sif add
    --groupid 1` writes, but for the times (tests/engines/test_inspect.py).
    """
    free = [slot for slot in range(sif.total) if slot not in {item.slot for item in sif.objects}]
    if not free or sif.free < 1:
        return ()
    # Of an image that has lost an object the numbers are not those of the slots.
    number = max([free[0], *(item.number for item in sif.objects)]) + 1
    end = sif.data + sif.data_size
    descriptor = DESCRIPTOR.pack(
        kind, True, number, GROUP, 0, end, len(content), len(content), sif.modified, sif.modified,
        0, 0, name.encode(), extra,
    )  # fmt: skip
    return (
        (end, content),
        (sif.descriptors + free[0] * DESCRIPTOR.size, descriptor),
        (80, struct.pack("<q", sif.free - 1)),
        (120, struct.pack("<q", sif.data_size + len(content))),
    )
