"""recipe doctor on made-up root folders: what it reads, and what it says of a site's driver."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from support.rows import rows

from builder.execute.doctor import check_memory, examine_drivers, examine_kernel, find_version_line
from builder.execute.doctor_readings import Reading, examine_places
from builder.model.finding import ToolError
from builder.parse.site import load_site

NVIDIA = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.86.10  Wed Jul 26 23:20:03 UTC 2023\nGCC version: 11\n"
NVIDIA_OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"


def root_with(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(("text", "version"), [(NVIDIA, "535.86.10"), (NVIDIA_OPEN, "580.65.06")])
def test_the_nvidia_driver_is_read_from_proc(tmp_path: Path, text: str, version: str) -> None:
    (reading,) = examine_drivers(None, root=root_with(tmp_path, proc__driver__nvidia__version=text))
    assert reading == Reading(name="nvidia driver", state="ok", says=version, group="GPU")


def test_another_driver_is_reported_with_the_option_for_it(tmp_path: Path) -> None:
    root = root_with(tmp_path, sys__module__amdgpu__version="6.10.5\n")
    (reading,) = examine_drivers(load_site("lumi-g"), root=root)
    assert reading.state == "bad"
    assert reading.says == "6.10.5 here, 6.3.60300-2084815 in the site's file"
    assert "--driver 6.10.5" in reading.fix


def test_a_reading_decides_between_two_sources(tmp_path: Path) -> None:
    root = root_with(tmp_path, proc__driver__nvidia__version=NVIDIA)
    (reading,) = examine_drivers(load_site("mn5"), root=root)
    assert (reading.state, "535.86.10 or 595.71.05 in the site's file" in reading.says) == ("bad", True)
    assert "--driver 535.86.10" in reading.fix


def test_the_sites_own_driver_is_fine(tmp_path: Path) -> None:
    root = root_with(tmp_path, proc__driver__nvidia__version=NVIDIA)
    mn5 = load_site("mn5")
    assert mn5.gpu is not None
    (reading,) = examine_drivers(replace(mn5, gpu=replace(mn5.gpu, other_driver=None)), root=root)
    assert (reading.state, reading.says) == ("ok", "535.86.10")


def test_a_node_without_the_sites_gpus_cannot_tell(tmp_path: Path) -> None:
    (reading,) = examine_drivers(load_site("mn5"), root=tmp_path)
    assert (reading.state, reading.fix) == ("none", "look on a GPU node")
    assert examine_drivers(load_site("local"), root=tmp_path) == []


def test_kernel_features_are_read_as_they_are(tmp_path: Path) -> None:
    root = root_with(tmp_path, proc__sys__user__max_user_namespaces="0\n", etc__subuid="anna:100000:65536\n")
    states = {reading.name: reading.state for reading in examine_kernel(root, user="anna")}
    assert states == {"user namespaces": "none", "sub-ids": "ok", "/dev/fuse": "none"}
    root = root_with(tmp_path, proc__sys__user__max_user_namespaces="95000\n")
    states = {reading.name: reading.state for reading in examine_kernel(root, user="ann")}
    assert states == {"user namespaces": "ok", "sub-ids": "none", "/dev/fuse": "none"}


@rows(
    ("text", "line"),
    [
        ("apptainer version 1.4.5\n", "apptainer version 1.4.5"),
        ("HYDRA build details:\n    Version:                                 4.2.1\n", "Version: 4.2.1"),
        ("mksquashfs version 4.5.1 (2022/03/17)\ncopyright (C) 2022\n", "mksquashfs version 4.5.1 (2022/03/17)"),
        ("\x1b[31mred 1.0\n", ""),
        ("\t/usr/lib/golang-1.21/src/runtime/panic.go:770 +0x132\n", ""),
        ("Docker version 27.1.2, build abc\n", "Docker version 27.1.2, build abc"),
        ("v0.3.1\n", "v0.3.1"),
        ("mpiexec (OpenRTE) 4.1.4\n", "mpiexec (OpenRTE) 4.1.4"),
        ("", ""),
    ],
)
def test_a_version_is_one_clean_line(text: str, line: str) -> None:
    assert find_version_line(text) == line


def test_only_a_user_of_that_very_name_or_number_has_sub_ids(tmp_path: Path) -> None:
    root = root_with(tmp_path, etc__subuid=f"{os.getuid()}:100000:65536\n")
    assert {one.name: one.state for one in examine_kernel(root, user="anna")}["sub-ids"] == "ok"
    root = root_with(tmp_path, etc__subuid="annabel:100000:65536\n")
    assert {one.name: one.state for one in examine_kernel(root, user="anna")}["sub-ids"] == "none"


def test_too_little_memory_is_said_before_anything_is_started() -> None:
    check_memory(resource.RLIM_INFINITY)
    check_memory(4 << 30)
    with pytest.raises(ToolError) as caught:
        check_memory(100_000 << 10)
    assert "97 MiB of memory (ulimit -v)" in caught.value.findings[0].message


def test_the_fix_names_the_variable_that_is_wrong(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    for name in ("RECIPE_TMPDIR", "TMPDIR"):
        place = examine_places(environment={**home, name: str(tmp_path / "gone")}, backend="")[0]
        assert (place.state, place.fix) == ("bad", f"set {name} or --tmpdir")
