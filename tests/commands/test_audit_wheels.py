"""The GPU audit on real wheels of the default index; second sources are pyelftools, elfgpu and NVIDIA's fatbinary."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import elfgpu
import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from support.bombs import squashfs
from support.made_elf import elf
from support.real_wheels import real_wheel

from builder.audit.binary import read_binary
from builder.audit.content import Memory
from builder.audit.distribution import Distribution, Inventory
from builder.audit.elf import parse_version
from builder.audit.gpu_verdict import Machine, Verdict, judge
from builder.audit.images import read_image
from builder.audit.installed import read_folder
from builder.audit.package_archives import read_wheel

H100 = Machine(vendor="nvidia", targets=("sm_90",), majors=(11, 12), cuda="12.2", glibc="2.35", python="3.12")
V100 = Machine(vendor="nvidia", targets=("sm_70",), majors=(11, 12), cuda="12.2", glibc="2.35", python="3.12")
OLD = Machine(vendor="nvidia", targets=("sm_80",), majors=(11,), cuda="11.8", glibc="2.35", python="3.12")
MI250 = Machine(vendor="amd", targets=("gfx90a",), majors=(6, 7), glibc="2.39", python="3.12")
MI350 = Machine(vendor="amd", targets=("gfx950",), majors=(6,), glibc="2.39", python="3.12")
PVC = Machine(vendor="intel", targets=("pvc",), glibc="2.35", python="3.12")
ARM = Machine(vendor="nvidia", targets=("sm_90",), majors=(12,), arch="aarch64", python="3.12")
BITSANDBYTES, CUPY, DPCTL = ("bitsandbytes", "0.49.0"), ("cupy-cuda12x", "13.6.0"), ("dpctl", "0.22.1")
JAX_ROCM, JAX_CUDA, XFORMERS = ("jax-rocm60-plugin", "0.5.0"), ("jax-cuda12-plugin", "0.7.2"), ("xformers", "0.0.35")
NUMPY, RUNTIME, ONNX = ("numpy", "2.2.6"), ("nvidia-cuda-runtime-cu12", "12.9.79"), ("onnxruntime", "1.23.2")
Wheel = tuple[str, str]


@cache
def inventory(wheel: Wheel) -> Inventory:
    return read_wheel(real_wheel(*wheel))


def package(wheel: Wheel) -> Distribution:
    (one,) = inventory(wheel).distributions
    return one


def targets(wheel: Wheel) -> set[str]:
    return {str(code) for binary in package(wheel).binaries for code in binary.code}


def verdict(wheel: Wheel, machine: Machine) -> Verdict:
    (found,) = judge(inventory(wheel), machine)
    return found


@pytest.mark.parametrize(
    ("wheel", "machine", "says"),
    [
        (BITSANDBYTES, H100, "uses this GPU"), (BITSANDBYTES, MI250, "uses this GPU"),
        (BITSANDBYTES, PVC, "uses this GPU"), (BITSANDBYTES, MI350, "no code for this GPU"),
        (CUPY, H100, "uses this GPU"), (CUPY, MI250, "other vendor"), (CUPY, OLD, "wrong runtime major"),
        (JAX_ROCM, MI250, "uses this GPU"), (JAX_ROCM, MI350, "no code for this GPU"), (JAX_ROCM, H100, "other vendor"),
        (JAX_CUDA, H100, "uses this GPU"), (XFORMERS, H100, "uses this GPU"), (XFORMERS, V100, "no code for this GPU"),
        (DPCTL, PVC, "uses this GPU"), (DPCTL, H100, "other vendor"), (NUMPY, MI250, "CPU only"),
        (ONNX, H100, "CPU only"), (RUNTIME, MI250, "other vendor"), (NUMPY, ARM, "other processor"),
    ],
)  # fmt: skip
def test_a_verdict_on_a_real_wheel(wheel: Wheel, machine: Machine, says: str) -> None:
    found = verdict(wheel, machine)
    assert found.says == says, found
    right = says in ("uses this GPU", "CPU only") and wheel != ONNX
    assert (found.wrong, bool(found.reason)) == (not right, True)


def test_what_the_wheels_hold() -> None:
    assert {"sm_60", "sm_90", "sm_120", "compute_120", "gfx90a", "gfx950", "gfx1201", "spir64", "12.60.7"} <= targets(
        BITSANDBYTES
    )
    assert {"sm_50", "sm_100f", "sm_120f", "compute_100"} <= targets(CUPY)
    assert {"gfx90a", "gfx942", "gfx1030"} <= targets(JAX_ROCM)
    assert targets(XFORMERS) == {"sm_75", "sm_80", "sm_90a", "compute_80"}
    assert targets(NUMPY) == set()
    majors = {
        (one.vendor, one.major) for binary in package(BITSANDBYTES).binaries for one in binary.linked if one.major
    }
    assert majors == {("nvidia", 11), ("nvidia", 12), ("nvidia", 13), ("amd", 6), ("amd", 7), ("intel", 25)}


def files_of(wheel: Wheel, folder: Path) -> Iterator[Path]:
    """The ELF files of a wheel, unpacked."""
    names = {binary.path for binary in package(wheel).binaries}
    with zipfile.ZipFile(real_wheel(*wheel)) as archive:
        for name in sorted(names):
            yield Path(archive.extract(name, folder))


@pytest.mark.parametrize("wheel", [BITSANDBYTES, CUPY, JAX_ROCM, DPCTL, NUMPY], ids=lambda wheel: wheel[0])
def test_pyelftools_reads_the_same(wheel: Wheel, tmp_path: Path) -> None:
    """Every library that is needed, the SONAME and the newest glibc, of every file."""
    ours = {binary.path: binary for binary in package(wheel).binaries}
    for path in files_of(wheel, tmp_path):
        with path.open("rb") as file:
            other = ELFFile(file)
            dynamic = next(one for one in other.iter_sections() if isinstance(one, DynamicSection))
            needed = tuple(tag.needed for tag in dynamic.iter_tags("DT_NEEDED"))
            sonames = [tag.soname for tag in dynamic.iter_tags("DT_SONAME")]
            words = [
                row.name.removeprefix("GLIBC_")
                for section in other.iter_sections() if isinstance(section, GNUVerNeedSection)
                for _, rows in section.iter_versions() for row in rows if row.name.startswith("GLIBC_2.")
            ]  # fmt: skip
        binary = ours[str(path.relative_to(tmp_path))]
        assert (binary.needed, [binary.soname] if binary.soname else []) == (needed, sonames), path
        assert binary.glibc == max(words, key=parse_version, default=""), path


@pytest.mark.parametrize("wheel", [BITSANDBYTES, JAX_ROCM, JAX_CUDA, XFORMERS], ids=lambda wheel: wheel[0])
def test_elfgpu_reads_the_same(wheel: Wheel, tmp_path: Path) -> None:
    """It knows `a` of cubins, and neither `f` nor the suffixes of PTX, nor SYCL."""
    ours = {binary.path: binary for binary in package(wheel).binaries}
    for path in files_of(wheel, tmp_path):
        code = [one for one in ours[str(path.relative_to(tmp_path))].code if one.kind in ("cubin", "ptx", "hip")]
        names = {
            one.target.rstrip("f" if one.kind == "cubin" else "af") if one.kind != "hip" else one.target for one in code
        }
        assert names == set(elfgpu.inspect(path)), path


FATBINARY = ("nvidia-cuda-nvcc", "13.5.37")
IMAGES = ("80", "90", "90a", "100", "100a", "100f", "103f", "120a", "120f")
PTX = ".version 8.8\n.target sm_{}\n.address_size 64\n.visible .entry k()\n{{\n ret;\n}}\n"


@pytest.mark.parametrize("options", [(), ("--compress-all",), ("--compress-all", "-concat")], ids=" ".join)
def test_what_nvidias_own_program_writes(options: tuple[str, ...], tmp_path: Path) -> None:
    """Containers of cubins and PTX for known targets, by ptxas and fatbinary."""
    with zipfile.ZipFile(real_wheel(*FATBINARY)) as archive:
        programs = {
            name.rpartition("/")[2]: Path(archive.extract(name, tmp_path))
            for name in archive.namelist() if name.endswith(("/bin/ptxas", "/bin/fatbinary"))
        }  # fmt: skip
    words = []
    for number in IMAGES:
        source, cubin = tmp_path / f"{number}.ptx", tmp_path / f"{number}.cubin"
        source.write_text(PTX.format(number))
        programs["ptxas"].chmod(0o755)
        subprocess.run([programs["ptxas"], f"-arch=sm_{number}", source, "-o", cubin], check=True)
        words.append(f"--image3=kind=elf,sm={number},file={cubin}")
    words += [f"--image3=kind=ptx,sm={number},file={tmp_path / number}.ptx" for number in ("90", "90a", "100f")]
    programs["fatbinary"].chmod(0o755)
    made = tmp_path / "x.fatbin"
    subprocess.run([programs["fatbinary"], f"--create={made}", "-64", *options, *words], check=True)
    found = read_binary("x.so", Memory(elf(sections={".nv_fatbin": made.read_bytes()})))
    assert found is not None
    assert {str(one) for one in found.code} == {
        *(f"sm_{number}" for number in IMAGES), "compute_90", "compute_90a", "compute_100f",
    }  # fmt: skip
    assert {one.isa for one in found.code if one.kind == "ptx"} == {"8.8"}


def unpacked(wheel: Wheel, site: Path) -> None:
    with zipfile.ZipFile(real_wheel(*wheel)) as archive:
        archive.extractall(site)


def test_a_library_is_missing_until_its_wheel_is_there(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("usr/bin", "usr/lib"):
        (root / name).mkdir(parents=True)
    site = root / "opt/env/lib/python3.12/site-packages"
    unpacked(XFORMERS, site)
    (found,) = judge(read_folder(root), H100)
    assert (found.says, found.wrong) == ("library missing in the image", True)
    assert "libcudart.so.12" in found.reason
    unpacked(RUNTIME, site)
    assert {one.name: one.says for one in judge(read_folder(root), H100)} == {
        "xformers": "uses this GPU", "nvidia-cuda-runtime-cu12": "uses this GPU",
    }  # fmt: skip


@pytest.mark.parametrize("packing", [("-comp", "gzip"), ("-comp", "zstd"), ("-comp", "xz", "-b", "1M")], ids=" ".join)
def test_an_image_says_what_its_wheels_say(packing: tuple[str, ...], tmp_path: Path) -> None:
    files = {}
    for wheel in (XFORMERS, DPCTL):
        with zipfile.ZipFile(real_wheel(*wheel)) as archive:
            site = "opt/env/lib/python3.12/site-packages/"
            files |= {site + name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    image = squashfs(tmp_path / "x.sqfs", files, *packing)
    found = {one.name: one for one in read_image(image).distributions}
    for wheel in (XFORMERS, DPCTL):
        own = {binary.path: binary for binary in package(wheel).binaries}
        read = {binary.path.partition("site-packages/")[2]: binary for binary in found[wheel[0]].binaries}
        assert {path: (one.code, one.needed, one.glibc) for path, one in read.items()} == {
            path: (one.code, one.needed, one.glibc) for path, one in own.items()
        }
