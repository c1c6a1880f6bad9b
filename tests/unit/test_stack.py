"""The GPU tables that ship with the tool: each row is about known things, and the tables agree with each other."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from builder.parse.driver_tables import load_driver_table
from builder.parse.gpu_tables import TABLES, load_image_table, load_package_table, load_torch_table
from builder.parse.site import load_site


def two(version: str) -> str:
    return ".".join(version.split(".")[:2])


def test_torch_releases_have_their_companions() -> None:
    releases = load_torch_table().releases
    assert [Version(row.torch) for row in releases] == sorted(Version(row.torch) for row in releases)
    assert len({row.torch for row in releases}) == len(releases)
    for row in releases:
        torch = Version(row.torch)
        vision = Version(row.torchvision)
        # torchvision is 15 minors behind torch up to 2.14; 2.15 was paired with a patch of 0.29 when it was read.
        assert vision.major == 0
        before = torch < Version("2.0")  # torchvision is 1 minor ahead of torch 1, torchaudio was 0.x
        assert vision.minor == (torch.minor + 1 if before else min(torch.minor, 14) + 15), row.torch
        audio = (0, torch.minor) if before else (2, min(torch.minor, 11))  # 2.11.0 serves all later ones
        assert Version(row.torchaudio).release[:2] == audio, row.torch
        assert before == (not row.cuda and not row.rocm)
        assert [Version(python) for python in row.pythons] == sorted(Version(python) for python in row.pythons)
        assert row.glibc in ("2.17", "2.28")


def test_tokens_of_a_release_are_tokens_of_the_index() -> None:
    table = load_torch_table()
    assert table.index.count("{token}") == 1
    for row in table.releases:
        for token in (*(row.cuda or ()), *(row.rocm or ())):
            assert token in table.tokens, (row.torch, token)
        if row.cuda is None:
            assert {"cuda", "rocm", "xpu"} <= set(row.unsure)
        assert all(token.startswith("cu") for token in row.cuda or ())
        assert all(token.startswith("rocm") for token in row.rocm or ())


def test_lumi_is_served_by_the_wheels_that_the_facts_compute() -> None:
    gpu = load_site("lumi-g").gpu
    assert gpu is not None
    served = {
        row.torch: [token for token in row.rocm or () if two(token.removeprefix("rocm")) in gpu.rocm]
        for row in load_torch_table().releases
    }
    assert served["2.3.1"] == []
    assert served["2.6.0"] == ["rocm6.1", "rocm6.2.4"]
    assert served["2.9.1"] == ["rocm6.3", "rocm6.4"]
    assert served["2.10.0"] == ["rocm7.0"]
    assert served["2.11.0"] == []


def test_the_targets_of_our_amd_sites_are_in_every_wheel() -> None:
    assert all("gfx90a" in row.gfx.split() for row in load_torch_table().gfx)


def test_triton_names_cover_every_release_once() -> None:
    for vendor in ("nvidia", "amd"):
        for row in load_torch_table().releases:
            names = [
                name.package
                for name in load_torch_table().triton
                if name.vendor == vendor
                and Version(name.torch_min or "0") <= Version(row.torch) <= Version(name.torch_max or "99")
            ]
            assert len(names) == 1, (vendor, row.torch)
            if vendor == "amd" and row.triton_rocm:
                assert row.triton_rocm.startswith(names[0] + "==")


def test_image_rows_are_versions_in_order() -> None:
    tags = [image.tag for image in load_image_table().ngc_pytorch]
    assert tags == sorted(tags)
    assert len(set(tags)) == len(tags)
    assert "25.07-py3" not in tags
    for image in load_image_table().ngc_pytorch:
        assert re.fullmatch(r"2\d\.(0[1-9]|1[0-2])-py3", image.tag)
        Version(image.torch)
        Version(image.cuda)
        assert image.constraint_file == (image.tag >= "25.03")
        if image.cuda_driver is not None:
            Version(image.cuda_driver)
    for row in load_image_table().intel_ipex:
        assert Version(row.ipex).local == "xpu"
        assert (Version(row.torch).major, Version(row.torch).minor) == Version(row.ipex).release[:2]


def test_an_ngc_torch_is_no_release_of_its_version() -> None:
    torch = next(image.torch for image in load_image_table().ngc_pytorch if image.tag == "24.11-py3")
    assert not SpecifierSet(">=2.6").contains(torch, prereleases=True)
    assert SpecifierSet("==2.6.*").contains(torch, prereleases=True)


def test_driver_tables_ascend_and_agree() -> None:
    table = load_driver_table()
    for versions in (
        [row.cuda for row in table.cuda_toolkits],
        [row.driver for row in table.cuda_toolkits],
        [row.kmd for row in table.rocm_windows],
        [row.amdgpu for row in table.amdgpu_versions],
    ):
        assert versions == sorted(versions, key=Version)
    for window in table.rocm_windows:
        assert list(window.user_space) == sorted(window.user_space, key=Version)
        assert all(re.fullmatch(r"\d+\.\d+", release) for release in window.user_space)
    windows = {row.kmd: row.user_space for row in table.rocm_windows}
    for row in table.rocm_user_spaces:
        for kmd in row.kmd:
            assert two(row.rocm) in windows[kmd], (row.rocm, kmd)
    assert all(row.kmd in windows or not row.user_space or row.until for row in table.site_drivers)


def test_the_driver_of_a_toolkit_serves_its_major() -> None:
    table = load_driver_table()
    least = {row.major: Version(row.min_driver) for row in table.cuda_majors}
    for row in table.cuda_toolkits:
        if Version(row.cuda) >= Version("11.1"):  # 11.0 came before minor-version compatibility
            assert Version(row.driver) >= least[Version(row.cuda).major], row.cuda


def test_package_rows_are_about_known_things() -> None:
    table = load_package_table()
    names = [row.name for row in table.packages]
    assert len(set(names)) == len(names)
    releases = {row.torch for row in load_torch_table().releases}
    for row in table.packages:
        builds = (row.nvidia, row.nvidia_cuda, row.amd, row.amd_rocm, row.intel, row.compilers)
        assert any(builds) or row.silent_loss
        assert set(row.minimum) <= set(row.pypi)
    for pin in table.torch_pins:
        for version, torch in pin.torch.items():
            SpecifierSet(torch)
            Version(version)
            assert not torch.startswith("==") or torch.removeprefix("==") in releases
    for marker in table.markers:
        assert marker.kind == "conda" or not marker.build


def test_every_row_says_where_and_when_it_was_read() -> None:
    assert sorted(path.name for path in TABLES.glob("*.yaml")) == [
        "drivers.yaml",
        "images.yaml",
        "packages.yaml",
        "torch.yaml",
    ]
    for table in (load_torch_table(), load_image_table(), load_driver_table(), load_package_table()):
        assert all(re.fullmatch(r"20\d\d-\d\d(-\d\d)?", source.checked) for source in table.sources.values())
        named = set()
        for field in fields(table):
            value = getattr(table, field.name)
            rows = value if isinstance(value, tuple) else (value,)
            for row in rows:
                if is_dataclass(row):
                    assert row.source, row
                    named.update(row.source)
        assert named == set(table.sources)
