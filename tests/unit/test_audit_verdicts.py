"""What packages are on a machine; their files are stand-ins (real wheels: tests/commands/test_audit_wheels.py)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from support.made_elf import ARM, bundle, elf, fatbin, installed, wheel
from support.rows import rows

from builder.audit.gpu_verdict import Machine, Verdict, judge
from builder.audit.installed import read_folder
from builder.audit.package_archives import read_wheel
from builder.parse.site import load_site
from builder.resolve.driver import make_machine

H100 = Machine(vendor="nvidia", targets=("sm_90",), majors=(11, 12), cuda="12.2", glibc="2.35", python="3.12")
MI250 = Machine(vendor="amd", targets=("gfx90a",), majors=(6, 7), glibc="2.39", python="3.12")
PVC = Machine(vendor="intel", targets=("pvc",), python="3.12")
CPU = Machine(vendor="cpu", glibc="2.36")
SM80, SM90 = fatbin(("cubin", 80, "", "")), fatbin(("cubin", 90, "", ""))


def cuda(code: bytes, major: int = 12) -> bytes:
    return elf(needed=[f"libcudart.so.{major}"], sections={".nv_fatbin": code})


def hip(code: bytes, major: int = 6) -> bytes:
    return elf(needed=[f"libamdhip64.so.{major}"], sections={".hip_fatbin": code})


SYCL = elf(needed=["libsycl.so.8"], sections={"__CLANG_OFFLOAD_BUNDLE__sycl-spir64": bytes(64)})
PLUGIN = {"a/libmain.so": elf(), "a/libplugin.so": elf(needed=["libcuda.so.1"])}
CASES: dict[str, tuple[Mapping[str, bytes], Machine, str, bool, str]] = {
    "exact": ({"a.so": cuda(SM90)}, H100, "uses this GPU", False, "sm_90"),
    "ptx": ({"a.so": cuda(fatbin(("ptx", 80, "", "8.0")))}, H100, "uses this GPU", False, "compute_80"),
    "one of two": ({"a.so": cuda(SM80), "b.so": cuda(SM90)}, H100, "uses this GPU", False, "sm_90"),
    "one build of several": ({"a.so": cuda(SM90, 13), "b.so": cuda(SM90, 12)}, H100, "uses this GPU", False, "sm_90"),
    "both vendors": ({"a.so": cuda(SM90), "b.so": hip(bundle("gfx90a"))}, MI250, "uses this GPU", False, "gfx90a"),
    "links only": ({"a.so": elf(needed=["libnvrtc.so.12"])}, H100, "uses this GPU", False, "libnvrtc.so.12"),
    "opens only": ({"a.so": elf(sections={".rodata": b"\0libcuda.so.1\0"})}, H100, "uses this GPU", False, "opens"),
    "sycl": ({"a.so": SYCL}, PVC, "uses this GPU", False, "spir64"),
    "nothing": ({"a.so": elf()}, H100, "CPU only", False, "no device code"),
    "no gpu there": ({"a.so": cuda(SM90)}, CPU, "CPU only", False, "there is no GPU"),
    "plug-in": (PLUGIN, MI250, "CPU only", False, "plug-in"),
    "codec": ({"a.so": elf(sections={".rodata": b"\0libcuda.so.1\0"})}, MI250, "CPU only", False, "no device code"),
    "cuda on amd": ({"a.so": cuda(SM90)}, MI250, "other vendor", True, "NVIDIA (sm_90)"),
    "hip on nvidia": ({"a.so": hip(bundle("gfx90a"))}, H100, "other vendor", True, "AMD (gfx90a)"),
    "sycl on nvidia": ({"a.so": SYCL}, H100, "other vendor", True, "Intel (spir64)"),
    "a vendor's library": ({"a.so": elf(soname="libcudart.so.12")}, MI250, "other vendor", True, "libcudart.so.12"),
    "newer cuda": (
        {"a.so": cuda(SM90, 13), "b.so": elf(needed=["libcuda.so.1"])}, H100, "wrong runtime major", True, "CUDA 13",
    ),
    "static newer cuda": (
        {"a.so": elf(sections={".nv_fatbin": fatbin(("cubin", 90, "", ""), ("ptx", 90, "", "9.0"))})},
        H100, "wrong runtime major", True, "CUDA 13",
    ),
    "older rocm": ({"a.so": hip(bundle("gfx90a"), 5)}, MI250, "wrong runtime major", True, "libamdhip64.so.5"),
    "older sm": ({"a.so": cuda(SM80)}, H100, "no code for this GPU", True, "sm_80"),
    "ptx too new": ({"a.so": cuda(fatbin(("ptx", 90, "", "8.7")))}, H100, "no code for this GPU", True, "PTX 8.7"),
    "other gfx": ({"a.so": hip(bundle("gfx942", "gfx90a:xnack+"))}, MI250, "no code for this GPU", True, "gfx942"),
    "glibc": ({"a.so": elf(glibc=["GLIBC_2.38"])}, H100, "newer glibc", True, "glibc 2.38"),
    "module": ({"a.cpython-311-x86_64-linux-gnu.so": elf()}, H100, "other Python", True, "3.11"),
    "machine": ({"a.so": elf(machine=ARM)}, H100, "other processor", True, "aarch64"),
}  # fmt: skip


def only(path: Path, files: Mapping[str, bytes], machine: Machine, *, tag: str = "py3-none-linux_x86_64") -> Verdict:
    (found,) = judge(read_wheel(wheel(path, files, tag=tag)), machine)
    return found


@rows("case", list(CASES))
def test_a_verdict_on_a_wheel(case: str, tmp_path: Path) -> None:
    files, machine, says, wrong, reason = CASES[case]
    found = only(tmp_path / "a-1-py3-none-linux_x86_64.whl", files, machine)
    assert (found.says, found.wrong) == (says, wrong), found
    assert reason in found.reason
    assert found.file in ("", *files)


def test_a_wheel_for_another_python(tmp_path: Path) -> None:
    found = only(tmp_path / "a-1-x.whl", {"a.so": elf()}, H100, tag="cp311-cp311-linux_x86_64")
    assert (found.says, found.wrong) == ("other Python", True)


@rows("name", ["torch", "jaxlib", "tensorflow", "onnxruntime", "paddlepaddle", "intel_extension_for_pytorch"])
def test_a_framework_without_its_gpu_is_wrong(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}-1-py3-none-linux_x86_64.whl"
    assert only(path, {"a.so": elf()}, MI250).wrong is True
    assert only(path, {"a.so": elf()}, CPU).wrong is False
    assert only(path, {"a.so": hip(bundle("gfx90a"))}, MI250).wrong is False


def image(root: Path, packages: Mapping[str, Mapping[str, bytes]], libraries: Mapping[str, bytes]) -> Path:
    for name in ("usr/bin", "usr/lib"):
        (root / name).mkdir(parents=True)
    for name, content in libraries.items():
        (root / "usr/lib" / name).write_bytes(content)
    for name, files in packages.items():
        installed(root / "opt/env/lib/python3.12/site-packages", name, files)
    return root


def test_a_library_that_the_image_lacks(tmp_path: Path) -> None:
    torch = {"torch/lib/libtorch_cuda.so": cuda(SM90), "torch/_C.so": elf()}
    (found,) = judge(read_folder(image(tmp_path / "a", {"torch": torch}, {})), H100)
    assert (found.says, found.file) == (
        "library missing in the image", "opt/env/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so",
    )  # fmt: skip
    runtime = {"nvidia/lib/libcudart.so.12": elf(soname="libcudart.so.12")}
    found, also = judge(read_folder(image(tmp_path / "b", {"nvidia_cuda": runtime, "torch": torch}, {})), H100)
    assert [found.says, also.says] == ["uses this GPU"] * 2


def test_the_library_may_be_a_link(tmp_path: Path) -> None:
    root = image(tmp_path / "a", {"x": {"x.so": cuda(SM90)}}, {})
    (root / "usr/lib/libcudart.so.12").symlink_to("/nowhere/at/all")
    (found,) = judge(read_folder(root), H100)
    assert found.says == "uses this GPU"


def test_the_driver_brings_its_own_library(tmp_path: Path) -> None:
    files = {"x.so": elf(needed=["libcuda.so.1"], sections={".nv_fatbin": SM90})}
    (found,) = judge(read_folder(image(tmp_path / "a", {"x": files}, {})), H100)
    assert found.says == "uses this GPU"


def test_what_no_package_installed_is_never_wrong(tmp_path: Path) -> None:
    found = judge(read_folder(image(tmp_path / "a", {}, {"libx.so": hip(bundle("gfx90a"))})), H100)
    assert [(one.kind, one.name, one.says, one.wrong) for one in found] == [
        ("files", "/usr/lib", "other vendor", False)
    ]


def test_a_plugin_makes_good_for_its_framework(tmp_path: Path) -> None:
    packages = {"jaxlib": {"jaxlib/a.so": elf()}, "jax_rocm60_plugin": {"jax_plugins/a.so": hip(bundle("gfx90a"))}}
    libraries = {"libamdhip64.so.6": elf(soname="libamdhip64.so.6")}
    found = judge(read_folder(image(tmp_path / "a", packages, libraries)), MI250)
    assert {one.name: (one.says, one.wrong) for one in found if one.kind == "pip"} == {
        "jaxlib": ("CPU only", False), "jax-rocm60-plugin": ("uses this GPU", False),
    }  # fmt: skip


def test_the_images_own_python_and_glibc_count(tmp_path: Path) -> None:
    files = {"x/a.cpython-311-x86_64-linux-gnu.so": elf()}
    (found,) = judge(read_folder(image(tmp_path / "a", {"x": files}, {})), dataclasses.replace(H100, python="3.11"))
    assert found.says == "other Python"


@rows(
    ("site", "vendor", "targets", "majors", "cuda_native"),
    [
        ("mn5", "nvidia", ("sm_90",), (11, 12, 13), "12.2"), ("lumi-g", "amd", ("gfx90a",), (6, 7), ""),
        ("dawn", "intel", ("pvc",), (), ""), ("lumi-c", "cpu", (), (), ""),
    ],
)  # fmt: skip
def test_a_site_as_the_audit_needs_it(
    site: str, vendor: str, targets: tuple[str, ...], majors: tuple[int, ...], cuda_native: str
) -> None:
    found = make_machine(load_site(site))
    assert (found.vendor, found.targets, found.majors, found.cuda) == (vendor, targets, majors, cuda_native)
