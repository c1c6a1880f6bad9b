"""Two sources that disagree about a site: both are kept, an open choice runs by both, and nothing is refused for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rows import rows

from builder.model.finding import ConfigError, Finding, UnsupportedError
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.driver import make_machine
from builder.resolve.resolve import resolve

NEWER = "docker://nvcr.io/nvidia/pytorch:25.10-py3"


def decide(folder: Path, site: str, *lines: str, more: str = "", **context: str) -> Target:
    path = folder / "environment.yml"
    body = "".join(f"    - {line}\n" for line in lines)
    path.write_text(f"name: x\ndependencies:\n  - python=3.12\n  - pip:\n{body}{more}")
    return resolve(load_recipe(path), load_site(site), context=Context(**context))


def list_disputes(target: Target) -> list[Finding]:
    return [one for one in target.findings if one.code == "driver-disputed"]


def test_both_readings_of_a_driver_are_kept_with_their_dates() -> None:
    gpu = load_site("mn5").gpu
    assert gpu is not None
    assert (gpu.driver, gpu.driver_checked) == ("535.86.10", "2024-05-22")
    assert (gpu.other_driver, gpu.other_driver_checked) == ("595.71.05", "2026-08")


@rows("line", ["torch", "torch>=2.9", "torch==2.13.0"])
def test_an_open_torch_takes_a_build_that_both_drivers_serve(line: str, tmp_path: Path) -> None:
    target = decide(tmp_path, "mn5", line)
    torch = target.environment.torch
    assert torch is not None
    assert torch.provided or torch.token.startswith("cu12"), torch
    assert list_disputes(target) == []


def test_a_pin_that_only_the_newer_driver_serves_is_a_warning(tmp_path: Path) -> None:
    target = decide(tmp_path, "mn5", "torch==2.11.0+cu130")
    assert target.environment.torch is not None
    assert target.environment.torch.local == "2.11.0+cu130"
    (found,) = list_disputes(target)
    assert found.level == "warning"
    assert "'mn5'" in found.message
    assert "535.86.10 (2024-05-22) and 595.71.05 (2026-08)" in found.message
    assert "--driver" in found.fix


@rows(
    "line, base",
    [
        ("torch==2.5.1", "cpe:24.11_gnu_ubuntu"),
        ("torch==2.5.1+rocm6.2", "cpe:24.11_gnu_ubuntu"),
        ("torch==2.4.1+rocm6.1", "cpe:25.09_gnu_ubuntu"),
    ],
)
def test_frontiers_disputed_rocm_is_a_warning(line: str, base: str, tmp_path: Path) -> None:
    target = decide(tmp_path, "frontier", line)
    assert [one.level for one in list_disputes(target)] == ["warning"]
    assert target.base.reference.endswith(base)


def test_an_open_torch_on_frontier_is_not_disputed(tmp_path: Path) -> None:
    target = decide(tmp_path, "frontier", "torch>=2.7")
    assert target.environment.torch is not None
    assert target.environment.torch.token == "rocm7.1"
    assert list_disputes(target) == []


def test_what_no_source_says_is_served_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        decide(tmp_path, "frontier", "torch==2.3.1+rocm6.0")
    assert "torch-driver" in {one.code for one in caught.value.findings}


def test_a_base_image_for_the_newer_driver_is_a_warning(tmp_path: Path) -> None:
    target = decide(tmp_path, "mn5", "torch", base=NEWER)
    assert target.environment.place == "base"
    assert [NEWER in one.message for one in list_disputes(target)] == [True]


@rows("line", ["cupy-cuda13x[ctk]==14.1.0", "jax[cuda13]==0.8.0"])
def test_a_package_for_the_newer_driver_is_a_warning(line: str, tmp_path: Path) -> None:
    assert [one.level for one in list_disputes(decide(tmp_path, "mn5", line))] == ["warning"]


def test_a_driver_read_on_a_node_ends_the_dispute(tmp_path: Path) -> None:
    target = decide(tmp_path, "mn5", "torch==2.11.0+cu130", driver="595.71.05")
    assert not {"driver-disputed", "site-unsure"} & {one.code for one in target.findings}
    with pytest.raises(UnsupportedError) as caught:
        decide(tmp_path, "mn5", "torch==2.11.0+cu130", driver="535.86.10")
    assert "torch-driver" in {one.code for one in caught.value.findings}


def test_a_driver_in_a_site_of_ones_own_ends_the_dispute(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        'name: mine\nextends: mn5\ngpu: {driver: 580.95.05, driver_checked: "2026-11-01"}\n'
    )
    gpu = load_site("mine", folder=tmp_path).gpu
    assert gpu is not None
    assert (gpu.driver, gpu.other_driver) == ("580.95.05", None)


def test_the_audit_refuses_no_package_of_the_newer_driver() -> None:
    assert {12, 13} <= set(make_machine(load_site("mn5")).majors)


@rows(
    "lines, code",
    [
        ("gpu: {other_driver: 595.71.05, other_driver_checked: }", "site-date"),
        ("gpu: {other_driver: newest}", "site-version"),
        ('gpu: {rocm_disputed: ["6.x"]}', "site-rocm"),
    ],
)
def test_faulty_second_readings_are_found(lines: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"name: mine\nextends: mn5\n{lines}\n")
    with pytest.raises(ConfigError) as caught:
        load_site("mine", folder=tmp_path)
    assert code in {one.code for one in caught.value.findings}
