"""Which device code runs on which GPU."""

from __future__ import annotations

from support.rows import rows

from builder.audit.device_code import Code, Kind
from builder.audit.gpu_verdict import can_install_tag, can_load_module
from builder.audit.vendor_rules import can_run, find_newest_ptx

ROWS: list[tuple[Kind, str, str, bool]] = [
    ("cubin", "sm_80", "sm_80", True), ("cubin", "sm_80", "sm_86", True), ("cubin", "sm_86", "sm_80", False),
    ("cubin", "sm_80", "sm_90", False), ("cubin", "sm_90", "sm_90", True), ("cubin", "sm_90a", "sm_90", True),
    ("cubin", "sm_100a", "sm_103", False), ("cubin", "sm_100f", "sm_103", True), ("cubin", "sm_103f", "sm_100", False),
    ("cubin", "sm_120f", "sm_121", True), ("cubin", "sm_100f", "sm_120", False), ("cubin", "sm_100", "sm_120", False),
    ("cubin", "sm_86", "sm_87", False), ("cubin", "sm_87", "sm_89", False), ("cubin", "sm_87", "sm_87", True),
    ("ptx", "compute_80", "sm_90", True), ("ptx", "compute_90", "sm_80", False),
    ("ptx", "compute_90a", "sm_100", False),
    ("ptx", "compute_90a", "sm_90", True), ("ptx", "compute_100f", "sm_103", True),
    ("ptx", "compute_100f", "sm_120", False), ("ptx", "compute_50", "sm_120", True),
    ("hip", "gfx90a", "gfx90a", True), ("hip", "gfx90a:xnack-", "gfx90a", True),
    ("hip", "gfx90a:xnack+", "gfx90a", False),
    ("hip", "gfx90a:xnack+", "gfx90a:xnack+", True), ("hip", "gfx90a:sramecc+:xnack-", "gfx90a", True),
    ("hip", "gfx90a:sramecc-", "gfx90a", False), ("hip", "gfx90a", "gfx942", False),
    ("hip", "gfx9-4-generic", "gfx942", True), ("hip", "gfx9-4-generic", "gfx90a", False),
    ("hip", "gfx9-generic", "gfx906", True), ("hip", "gfx9-generic", "gfx90a", False),
    ("hip", "gfx11-generic", "gfx1100", True), ("hip", "gfx11-generic", "gfx1201", False),
    ("hip", "gfx9-4-generic:xnack+", "gfx942", False), ("sycl", "12.60.7", "pvc", True),
    ("sycl", "12.55.8", "pvc", False),
    ("sycl", "intel_gpu", "pvc", True), ("spirv", "spir64", "pvc", True), ("cubin", "gfx90a", "sm_90", False),
]  # fmt: skip


@rows(("kind", "target", "device", "right"), ROWS)
def test_code_and_device(kind: Kind, target: str, device: str, right: bool) -> None:
    assert can_run(Code(kind=kind, target=target), [device]) is right


def test_ptx_needs_a_driver_that_knows_its_version() -> None:
    new = Code(kind="ptx", target="compute_80", isa="8.7")
    assert can_run(new, ["sm_90"]) is True
    assert can_run(new, ["sm_90"], ptx=find_newest_ptx("12.8")) is True
    assert can_run(new, ["sm_90"], ptx=find_newest_ptx("12.2")) is False
    assert (find_newest_ptx("12.2"), find_newest_ptx("12.99"), find_newest_ptx(""), find_newest_ptx("9.0")) == (
        "8.2",
        "8.8",
        "",
        "",
    )


@rows(
    ("tag", "python", "right"),
    [
        ("cp312-cp312-linux_x86_64", "3.12", True), ("cp312-cp312-linux_x86_64", "3.13", False),
        ("cp310-abi3-linux_x86_64", "3.12", True), ("cp310-abi3-linux_x86_64", "3.9", False),
        ("cp310-abi3-linux_x86_64", "3.13t", False), ("py3-none-any", "3.12", True), ("py2.py3-none-any", "3.9", True),
        ("py39-none-any", "3.12", True), ("py313-none-any", "3.12", False),
        ("cp313-cp313t-linux_x86_64", "3.13t", True),
        ("cp313-cp313t-linux_x86_64", "3.13", False), ("pp310-pypy310_pp73-linux", "3.10", False),
    ],
)  # fmt: skip
def test_tags_of_wheels(tag: str, python: str, right: bool) -> None:
    assert can_install_tag(tag, python) is right


def test_extension_modules() -> None:
    assert [can_load_module(built, "3.13t") for built in ("3.13t", "3.13", "abi3")] == [True, False, False]
    assert can_load_module("abi3", "3.12")
