"""What a build job asks for: the site's figures, and more where the image is large or the disk is memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.matrix import recipes

from builder.compile.step_scripts import estimate_memory_gib, estimate_minutes, estimate_size_gib, fit_job
from builder.model.target import Context, Target
from builder.parse.site import load_site
from builder.resolve.resolve import resolve


def target_of(site: str, *, base_gib: float = 0.0) -> Target:
    return resolve(recipes()["mnist"][0], load_site(site), context=Context(tool="recipe", base_gib=base_gib))


def test_a_disk_that_is_memory_holds_the_image_twice() -> None:
    target = target_of("lumi-g")
    assert estimate_memory_gib(target) == 64  # 2 x 27 GiB and 8 of its own
    disk = replace(target, site=replace(target.site, build=replace(target.site.build, tmpdir_is="disk")))
    assert estimate_memory_gib(disk) == 8


def test_the_size_of_a_base_image_that_is_there_counts() -> None:
    assert estimate_size_gib(target_of("lumi-g", base_gib=40.0)) - estimate_size_gib(
        target_of("lumi-g")
    ) == pytest.approx(28.0)


def test_a_large_image_gets_more_memory_up_to_that_of_a_node() -> None:
    target = target_of("lumi-g", base_gib=60.0)
    job = target.site.scheduler.jobs["build"]
    assert fit_job(target, job).options["mem"] == "160G"
    assert fit_job(target, job).minutes == estimate_minutes(target) == 165
    huge = target_of("lumi-g", base_gib=1000.0)
    assert fit_job(huge, job).options["mem"] == "476G"


def test_a_small_image_gets_what_the_site_says() -> None:
    target = target_of("lumi-c")
    job = target.site.scheduler.jobs["build"]
    assert fit_job(target, job) == job


def test_a_site_that_gives_whole_nodes_is_not_asked_for_memory() -> None:
    target = target_of("frontier", base_gib=100.0)
    assert "mem" not in fit_job(target, target.site.scheduler.jobs["build"]).options
