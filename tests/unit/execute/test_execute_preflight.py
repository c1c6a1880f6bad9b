"""What must be so before any work begins."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from builder.execute.machine import check_machine
from builder.execute.plan_executor import find_kept_image
from builder.execute.preflight import IN_CONTAINER, check_output, check_space, find_programs
from builder.model.finding import BuilderError, ConfigError, Location, ToolError
from builder.model.plan import Plan
from builder.parse.site import load_site

PlanOf = Callable[..., Plan]


def code(call: Callable[[], Any], error: type[BuilderError] = ConfigError) -> str:
    with pytest.raises(error) as caught:
        call()
    assert all(finding.fix for finding in caught.value.findings)
    return caught.value.findings[0].code


def test_here_overrules_what_a_host_name_says(plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is a guess; a base image that is missing is a fact."""
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="glogin1.example", machine="x86_64"))
    site, plan = load_site("dawn"), plan_of(site="dawn")

    def check(plan: Plan, *, sure: bool) -> None:
        check_machine(
            site, plan, steps=plan.steps, here=plan.steps, environment={}, plan_line="recipe plan dawn x.yml",
            base_at=Location(key="--base"), sure=sure,
        )  # fmt: skip

    with pytest.raises(ToolError) as caught:
        check(plan, sure=False)
    finding = caught.value.findings[0]
    assert "it is one of 'mn5-gpp', by its name" in finding.message
    assert finding.fix.endswith("; if this is a machine of 'dawn' all the same, give --here")
    check(plan, sure=True)
    there = replace(plan, base="/no/such/base.sif")
    assert code(lambda: check(there, sure=True)) == "base-missing"


def test_an_output_is_not_overwritten_without_force(plan_of: PlanOf, tmp_path: Path) -> None:
    output = tmp_path / "x.sif"
    check_output(plan_of(), output, force=False, kept=None)
    output.touch()
    assert code(lambda: check_output(plan_of(), output, force=False, kept=None)) == "output-exists"
    check_output(plan_of(), output, force=True, kept=None)
    check_output(plan_of(), output, force=False, kept=output)


def test_an_image_that_no_step_makes_is_kept(plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of({"test": {"text": "", "kind": "smoke"}})
    assert find_kept_image(plan, plan.steps, tmp_path) == tmp_path / plan.image


@pytest.mark.parametrize("product", ["x.sif", "x.sif/bin/python3"])
def test_an_image_that_a_step_makes_is_not_kept(plan_of: PlanOf, tmp_path: Path, product: str) -> None:
    plan = plan_of({"build": {"text": "", "produces": (product,)}}, image="x.sif")
    assert find_kept_image(plan, plan.steps, tmp_path) is None


@pytest.mark.parametrize("force", [False, True])
def test_a_dangling_link_is_an_output_too(plan_of: PlanOf, tmp_path: Path, force: bool) -> None:
    output = tmp_path / "x.sif"
    output.symlink_to("nowhere")
    assert code(lambda: check_output(plan_of(), output, force=force, kept=None)) == "output-kind"


def test_force_does_not_remove_folders_that_are_not_ours(plan_of: PlanOf, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "thesis.tex").touch()
    env = plan_of(image_kind="folder")
    assert code(lambda: check_output(plan_of(), folder, force=True, kept=None)) == "output-kind"
    assert code(lambda: check_output(env, folder, force=True, kept=None)) == "output-kind"
    (folder / "bin").mkdir()
    (folder / "common.sh").touch()
    check_output(env, folder, force=True, kept=None)


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_regular_file_is_never_replaced(plan_of: PlanOf, tmp_path: Path, force: bool) -> None:
    pipe = tmp_path / "x.sif"
    os.mkfifo(pipe)
    assert code(lambda: check_output(plan_of(), pipe, force=force, kept=None)) == "output-kind"
    assert pipe.is_fifo()


def test_the_output_needs_a_folder(plan_of: PlanOf, tmp_path: Path) -> None:
    assert code(lambda: check_output(plan_of(), tmp_path / "no" / "x.sif", force=True, kept=None)) == "output-folder"
    (tmp_path / "six.yml").write_text("x")
    with pytest.raises(ConfigError, match="which is a file"):
        check_output(plan_of(), tmp_path / "six.yml" / "x.sif", force=True, kept=None)


def test_every_missing_program_is_named(plan_of: PlanOf) -> None:
    plan = plan_of(
        {
            "a": {"text": "", "programs": ("bash", "no-such-program|docker", "cotainr")},
            "b": {"text": "", "programs": ("cotainr",)},
        }
    )
    with pytest.raises(ToolError) as caught:
        find_programs(plan.steps, environment={"PATH": "/nowhere"})
    messages = [finding.message for finding in caught.value.findings]
    assert messages == [
        "step 'a' needs 'bash', which is not on PATH",
        "step 'a' needs 'no-such-program' or 'docker', which is not on PATH",
        "step 'a' needs 'cotainr', which is not on PATH",
    ]
    assert "docker" in caught.value.findings[1].fix.lower()


def test_one_of_several_programs_is_enough(plan_of: PlanOf) -> None:
    plan = plan_of({"a": {"text": "", "programs": ("no-such-program|bash",)}})
    assert list(find_programs(plan.steps, environment=os.environ)) == ["bash"]


def test_space_is_given_in_figures(plan_of: PlanOf, tmp_path: Path) -> None:
    steps = plan_of({"a": {"text": "", "space_gib": 1e6}, "b": {"text": "", "space_gib": 1.0}}).steps
    with pytest.raises(ToolError) as caught:
        check_space(steps, scratch=tmp_path, folder=tmp_path, output=tmp_path / "x.sif")
    first = caught.value.findings[0]
    assert first.code == "no-space"
    assert first.message.startswith(f"the temporary folder '{tmp_path}' has ")
    assert first.message.endswith("the build needs 1000000.0 GiB")
    assert "--tmpdir" in first.fix
    check_space(steps[1:], scratch=tmp_path, folder=tmp_path, output=tmp_path / "x.sif")


def test_limits_of_files_are_seen_before_a_build(
    plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = plan_of({"a": {"text": "", "space_gib": 0.001}}).steps
    place = {"scratch": tmp_path, "folder": tmp_path, "output": tmp_path / "x.sif"}
    check_space(steps, **place)
    room = {"f_bavail": 10**9, "f_blocks": 10**9, "f_bfree": 10**9, "f_frsize": 4096}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        assert code(lambda: check_space(steps, **place), ToolError) == "file-size"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_files=1000, f_favail=7, **room))
    assert code(lambda: check_space(steps, **place), ToolError) == "no-space"
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_files=0, f_favail=0, **room))
    check_space(steps, **place)


def test_fault_04_layers_need_room_in_their_cache_and_none_for_temporary_files(plan_of: PlanOf, tmp_path: Path) -> None:
    steps = plan_of({"a": {"text": "", "space_gib": 1e6}}).steps
    cache, there = tmp_path / "not" / "yet", tmp_path / "x.sif"
    with pytest.raises(ToolError) as caught:
        check_space(steps, scratch=tmp_path / "tmp", folder=tmp_path, output=there, cache=cache)
    messages = [(finding.code, finding.message.split("'")[0].strip(), finding.fix) for finding in caught.value.findings]
    assert messages == [
        (
            "no-space",
            "the cache",
            "set RECIPE_CACHE_DIR to a folder on a larger disk, or make room with `recipe cache prune`",
        ),
        ("no-space", "the plan folder", "choose a larger disk with -o"),
        ("no-space", "the folder of the output", "choose a larger disk with -o"),
    ]


def test_layers_need_a_little_of_the_temporary_folder(
    plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, room = plan_of({"a": {"text": "", "space_gib": 1.0}}).steps, tmp_path / "small"
    room.mkdir()
    free = 2 * 1024**2
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free if path == room else 1e15))
    place = {"scratch": room, "folder": Path("/"), "output": Path("/x.sif"), "cache": tmp_path / "cache"}
    with pytest.raises(ToolError, match=r"the temporary folder '.*' has 2 MiB free, and the build needs 51 MiB"):
        check_space(steps, **place, temporary=IN_CONTAINER)
    free = 30 * 1024**2
    check_space(steps, **place)


def test_fault_04_a_new_cache_is_asked_for_the_measured_peak(
    plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch for CPUs: 3.3 GiB foreseen, 1306 MB taken of a new cache. One that has packages may have these."""
    steps, cache, free = plan_of({"a": {"text": "", "space_gib": 3.3}}).steps, tmp_path / "cache", 1306e6
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free if path == tmp_path else 1e15))
    place = {"scratch": Path("/"), "folder": Path("/"), "output": Path("/x.sif"), "cache": cache}
    with pytest.raises(ToolError, match=r"the cache '.*' has 1.2 GiB free, and the build needs 1.3 GiB"):
        check_space(steps, **place)
    free = 1.4 * 1024**3
    check_space(steps, **place)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=0.4 * 1024**3))
    (cache / "uv").mkdir(parents=True)
    with pytest.raises(ToolError) as caught:
        check_space(steps, **place)
    assert not [finding for finding in caught.value.findings if finding.message.startswith("the cache")]


def test_fault_05_a_cache_that_may_not_be_written(
    plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = plan_of({"a": {"text": "", "space_gib": 0.001}}).steps
    cache = tmp_path / "home" / ".cache" / "recipe"
    cache.parent.parent.mkdir()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, how: Path(path).name != "home" and allowed(path, how))
    with pytest.raises(ToolError) as caught:
        check_space(steps, scratch=tmp_path, folder=tmp_path, output=tmp_path / "x.sif", cache=cache)
    (finding,) = caught.value.findings
    assert finding.code == "cache-folder"
    assert finding.message == f"the cache folder '{cache}' cannot be used: you may not write to '{tmp_path}/home'"
    assert finding.fix == "set RECIPE_CACHE_DIR to a folder of your own"
    assert not cache.exists()


def test_squashfs_is_found_where_the_build_finds_it(
    plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/usr/sbin is not on every user's PATH; an engine there is not what a step starts."""
    for name in ("mksquashfs", "apptainer"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setattr("builder.execute.preflight.MORE", str(tmp_path))
    (step,) = plan_of({"build": {"text": ""}}).steps
    found = find_programs([replace(step, programs=("mksquashfs",))], environment={"PATH": "/nowhere"})
    assert found == {"mksquashfs": tmp_path / "mksquashfs"}
    with pytest.raises(ToolError):
        find_programs([replace(step, programs=("apptainer",))], environment={"PATH": "/nowhere"})
