"""The GPU of this machine: how it is read, and what the site of this machine becomes by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.rows import rows

from builder.compile.compile import compile_plan
from builder.model.plan import Plan
from builder.model.site import Gpu
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.pipeline import resolution
from builder.resolve.own_machine import apply_machine
from builder.resolve.resolve import resolve
from builder.system.gpus import QUERY, make_gpu, read_gpus

# Lines as nvidia-smi prints them for QUERY.
H100 = "NVIDIA H100 80GB HBM3, 550.54.15, 81559, 9.0, 00000000:19:00.0\n"
RTX = "NVIDIA GeForce RTX 3090, 550.54.15, 24576, 8.6, 00000000:1A:00.0\n"


def machine(root: Path, *, nvidia: bool = False, amd: tuple[int, ...] = (), intel: tuple[str, ...] = ()) -> Path:
    if nvidia:
        (root / "proc/driver/nvidia").mkdir(parents=True)
        (root / "proc/driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n")
    for number, version in enumerate(amd):
        node = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
        (node / "mem_banks/0").mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 0\nsimd_count 440\ngfx_target_version {version}\n")
        (node / "mem_banks/0/properties").write_text(f"heap_type 1\nsize_in_bytes {64 * 1024**3}\n")
    if amd:
        (root / "sys/module/amdgpu").mkdir(parents=True)
        (root / "sys/module/amdgpu/version").write_text("6.10.5\n")
    for number, device in enumerate(intel):
        folder = root / f"sys/bus/pci/devices/0000:{number:02}:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text("0x8086\n")
        (folder / "device").write_text(f"{device}\n")
        (folder / "local_cpulist").write_text("0-47\n")
    return root


def gpu_of(root: Path, text: str = "") -> Gpu | None:
    return make_gpu(read_gpus(root=root, answer=lambda argv: text if tuple(argv) == QUERY else ""))


def test_nvidia_is_asked_by_its_own_program(tmp_path: Path) -> None:
    found = gpu_of(machine(tmp_path, nvidia=True), H100 * 4)
    assert found is not None
    assert (found.vendor, found.model, found.target, found.devices, found.memory_gib, found.driver) == (
        "nvidia", "NVIDIA H100 80GB HBM3", "sm_90", 4, 80, "550.54.15",
    )  # fmt: skip


@rows(
    "text",
    ["", "No devices were found\n", "Failed to initialize NVML: Driver/library version mismatch\n", "a,b,c,d,e\n"],
)
def test_a_driver_without_a_gpu_is_none(text: str, tmp_path: Path) -> None:
    assert gpu_of(machine(tmp_path, nvidia=True), text) is None


def test_without_the_driver_no_program_is_started(tmp_path: Path) -> None:
    def answer(argv: object) -> str:
        raise AssertionError(argv)

    assert read_gpus(root=tmp_path, answer=answer) == ()


def test_the_cores_next_to_a_gpu_do_not_make_it_another(tmp_path: Path) -> None:
    root = machine(tmp_path, nvidia=True)
    for address, cores in (("0000:19:00.0", "0-15"), ("0000:1a:00.0", "16-31")):
        (root / "sys/bus/pci/devices" / address).mkdir(parents=True)
        (root / "sys/bus/pci/devices" / address / "local_cpulist").write_text(f"{cores}\n")
    text = H100 + H100.replace(":19:", ":1A:")
    assert [device.cores for device in read_gpus(root=root, answer=lambda _: text)] == ["0-15", "16-31"]
    found = gpu_of(root, text)
    assert found is not None
    assert found.devices == 2


def test_gpus_of_another_kind_are_left_out(tmp_path: Path) -> None:
    found = gpu_of(machine(tmp_path, nvidia=True), RTX + H100 + RTX)
    assert found is not None
    assert (found.target, found.devices) == ("sm_86", 2)


@rows(("version", "target"), [(90010, "gfx90a"), (90402, "gfx942"), (100300, "gfx1030"), (110001, "gfx1101")])
def test_amd_is_read_from_the_kernel(version: int, target: str, tmp_path: Path) -> None:
    found = gpu_of(machine(tmp_path, amd=(0, version, version)))  # the first node is a processor
    assert found is not None
    assert (found.vendor, found.target, found.devices, found.memory_gib, found.driver) == (
        "amd", target, 2, 64, "6.10.5",
    )  # fmt: skip


def test_intel_is_read_and_not_used_here(tmp_path: Path) -> None:
    root = machine(tmp_path, intel=("0x0bd5", "0x56a0"))
    (device,) = read_gpus(root=root, answer=" ".join)
    assert (device.model, device.target, device.cores) == ("Intel Data Center GPU Max 1550", "pvc", "0-47")
    assert gpu_of(root) is None


def planned(folder: Path, gpu: Gpu | None, *, container: str = "{}", torch: str = "torch") -> Plan:
    path = folder / "environment.yml"
    path.write_text(f"name: x\ndependencies: [{{pip: [{torch}]}}]\ncontainer: {container}\n", encoding="utf-8")
    context = Context(gpu=gpu)
    return compile_plan(resolve(load_recipe(path, shown=path.name), load_site("local"), context=context))


def test_this_machine_with_a_gpu_needs_no_file(tmp_path: Path) -> None:
    gpu = gpu_of(machine(tmp_path, nvidia=True), H100 * 2)
    plan = planned(tmp_path, gpu)
    assert (plan.vendor, plan.expect["vendor"], plan.expect["architecture"]) == ("nvidia", "nvidia", "sm_90")
    assert "+cu12" in plan.expect["torch"]
    assert "--nv" in next(file.text for file in plan.files if file.path == "run/container.sh")
    note = next(finding for finding in plan.findings if finding.code == "local-gpu")
    assert "2 NVIDIA H100 80GB HBM3, driver 550.54.15" in note.message


@rows("container", ["{gpu: [cpu]}", "{gpu: [amd]}"])
def test_a_recipe_for_something_else_stays_on_the_processors(container: str, tmp_path: Path) -> None:
    gpu = gpu_of(machine(tmp_path, nvidia=True), H100)
    plan = planned(tmp_path, gpu, container=container)
    assert (plan.vendor, "+cpu" in plan.expect["torch"]) == ("cpu", True)
    assert "local-gpu" not in [finding.code for finding in plan.findings]


@rows(("version", "driver", "flag"), [
    (90010, "6.10.5", "--rocm"),
    (90010, "99.99.99", ""),
    (90010, None, ""),  # the kernel's own driver does not say its version
    (110003, "6.10.5", ""),  # gfx1103: in the processors of laptops
])  # fmt: skip
def test_an_amd_gpu_that_no_torch_can_use_is_left_out(
    version: int, driver: str | None, flag: str, tmp_path: Path
) -> None:
    gpu = gpu_of(machine(tmp_path, amd=(version,)))
    assert gpu is not None
    site = apply_machine(load_site("local"), replace(gpu, driver=driver))
    assert (site.runtime.gpu_flag, site.gpu is not None) == (flag, bool(flag))


@rows(("driver", "flag"), [("550.54.15", "--nv"), ("340.108", ""), (None, "")])
def test_an_nvidia_gpu_with_an_old_driver_is_left_out(driver: str | None, flag: str, tmp_path: Path) -> None:
    gpu = gpu_of(machine(tmp_path, nvidia=True), H100)
    assert gpu is not None
    assert apply_machine(load_site("local"), replace(gpu, driver=driver)).runtime.gpu_flag == flag


def test_only_the_site_of_this_machine_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu = gpu_of(machine(tmp_path, nvidia=True), H100)
    monkeypatch.setattr("builder.system.gpus.read_own_gpu", lambda: gpu)
    monkeypatch.setattr(resolution, "GPU_DRIVERS", (str(tmp_path / "none"),))
    assert resolution.add_gpu(Context(), load_site("local")).gpu is None
    monkeypatch.setattr(resolution, "GPU_DRIVERS", (str(tmp_path / "proc/driver/nvidia/version"),))
    assert resolution.add_gpu(Context(), load_site("local")).gpu == gpu
    for name in ("lumi-g", "mn5-gpp"):
        assert resolution.add_gpu(Context(), load_site(name)).gpu is None
        assert apply_machine(load_site(name), gpu) == load_site(name)
