"""Compiling is pure: same inputs, same bytes, whatever the folder, the environment, the hash seed or the machine."""

from __future__ import annotations

import builtins
import io
import json
import os
import socket
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest
from support.matrix import Case, cases, compiled, everything, outcome, plans, recipes, target_plan, text_of
from support.rows import rows

from builder.compile.step_scripts import make_batch_header, make_step_job
from builder.execute.plan_folder import write_plan
from builder.model.finding import ConfigError, UnsupportedError, select_errors
from builder.model.plan import Plan, from_json, to_json
from builder.model.target import Context
from builder.parse.site import load_site
from builder.resolve.resolve import resolve


@pytest.mark.property
def test_twice_gives_the_same_bytes() -> None:
    for case in cases():
        assert text_of(compiled(case)) == text_of(outcome(case)), case.name


@pytest.mark.property
def test_nothing_outside_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the files of the tool are read, compiling opens nothing, asks nothing and starts nothing."""
    before = everything()

    def refused(*_: object, **__: object) -> NoReturn:
        raise AssertionError("compiling reached outside")

    class Refusing(dict[str, str]):
        __getitem__ = __contains__ = get = __iter__ = refused  # type: ignore[assignment]

    for module, name in (
        (builtins, "open"), (io, "open"), (os, "open"), (os, "getenv"), (os, "listdir"), (os, "getcwd"), (os, "stat"),
        (socket, "socket"), (subprocess, "Popen"), (Path, "read_text"), (Path, "exists"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, refused)
    monkeypatch.setattr(os, "environ", Refusing())
    try:
        after = everything()
    finally:
        monkeypatch.undo()
    assert after == before


@pytest.mark.property
def test_a_plan_is_read_back_as_it_was() -> None:
    for case, plan in plans():
        assert from_json(to_json(plan)) == plan, case.name


def test_a_plan_folder_holds_what_the_plan_says(tmp_path: Path) -> None:
    case = Case(stem="full", site="local", backend="docker")
    plan = outcome(case)
    assert isinstance(plan, Plan)
    write_plan(plan, tmp_path / "plan", recipe_folder=recipes()["full"][1])
    for file in plan.files:
        path = tmp_path / "plan" / file.path
        assert path.read_text(encoding="utf-8") == file.text
        assert os.access(path, os.X_OK) == file.executable or path.suffix != ".sh"
    assert (tmp_path / "plan" / "image" / "root" / "opt" / "nested" / "README").is_file()
    assert (tmp_path / "plan" / "image" / "root" / "opt" / "read" / "constraints.txt").is_file()
    assert from_json((tmp_path / "plan" / "plan.json").read_text(encoding="utf-8")) == plan


def test_every_step_can_be_run() -> None:
    """A step's script and job are files of the plan, and its products are named once."""
    for case, plan in plans():
        paths = {file.path for file in plan.files}
        for step in plan.steps:
            assert step.script in paths, case.name
            assert not step.batch or step.batch in paths, case.name
            assert step.produces, case.name
            assert step.why, case.name
        names = [step.name for step in plan.steps]
        assert len(set(names)) == len(names), case.name
        assert plan.steps[-1].kind == "smoke", case.name
        assert any(plan.image in step.produces or plan.image_kind == "folder" for step in plan.steps), case.name


def test_a_step_asks_for_the_planned_torch_where_one_is_planned() -> None:
    """Without one it looks for a torch that a package has brought."""
    said = {
        ("torch" in plan.expect, "planned torch" in step.why)
        for _, plan in plans()
        for step in plan.steps
        if step.kind == "verify"
    }
    assert said == {(True, True), (False, False)}


def test_every_plan_checks_torch_without_a_smoke_test() -> None:
    """In the build itself, or in a step of its own where the engine has no place for the question."""
    for case, plan in plans():
        texts = {file.path: file.text for file in plan.files}
        engine = {"apptainer": f"{plan.image.removesuffix('.sif')}.def", "docker": "Dockerfile"}.get(plan.backend)
        if engine is not None:
            assert "python3 /opt/recipe/verify.py /opt/recipe/recipe.json" in texts[engine], case.name
            continue
        first, second, *_ = plan.steps
        if plan.backend == "layers":
            # The program that makes the layers asks the files in them, by the same verify.py.
            assert '"$python" "${layering[@]}" build layers.json' in texts[first.script], case.name
            assert "image/verify.py" in texts
            continue
        assert (first.kind, second.kind, second.produces) == ("build", "verify", ("proof.json",)), case.name
        assert "python3 -B verify.py recipe.json proof.json" in texts[second.script], case.name


def test_the_gpu_that_kernels_are_asked_for_is_the_sites() -> None:
    for case, plan in plans():
        gpu = load_site(case.site).gpu
        asked = plan.expect.get("architecture")
        assert asked == (gpu.target if gpu and gpu.vendor in ("amd", "nvidia") else None), case.name


def test_scripts_that_are_sourced_or_run_are_there() -> None:
    """What a script names by `. FILE`, `bash FILE` or `python3 FILE` lies in the same folder."""
    for case, plan in plans():
        paths = {file.path for file in plan.files} | {copy.path for copy in plan.copies}
        for file in plan.files:
            if file.path.startswith("image/") or not file.path.endswith((".sh", ".sbatch")):
                continue
            for line in file.text.splitlines():
                words = line.split()
                if words[:1] == ["."] and "$" not in line and file.path != "engine.sh":
                    assert words[1].removeprefix("./") in paths, (case.name, file.path, line)
                if words[:1] == ["bash"] and words[1:2] and "$" not in words[1]:
                    assert words[1] in paths, (case.name, file.path, line)


def test_modules_for_running_are_not_loaded_during_a_build() -> None:
    """On Frontier and LUMI they set binds whose targets are not in an image that is being built."""
    seen = 0
    for case, plan in plans():
        for module in load_site(case.site).runtime.run_modules:
            seen += 1
            for file in plan.files:
                built = file.path.partition("-")[2].startswith(("build-image", "convert"))
                assert not built or f"use_module {module}" not in file.text, (case.name, file.path)
            assert any(f"use_module {module}" in file.text for file in plan.files if file.path == "run/job.sh")
    assert seen


def test_the_lines_of_a_job_script_are_the_job_of_its_step() -> None:
    seen = set()
    for case, plan in plans():
        texts = {file.path: file.text for file in plan.files}
        for step in plan.steps:
            assert bool(step.batch) == (step.job is not None), (case.name, step.name)
            if step.job is not None:
                lines = [line for line in texts[step.batch].splitlines() if line.startswith("#SBATCH")]
                assert lines == make_batch_header(step.job), (case.name, step.name)
                assert not set(step.job.options) & {"partition", "mem", "time", "account", "job-name", "output"}
                seen.add(case.site)
    assert len(seen) > 3


def test_a_plan_with_jobs_reads_back_the_same() -> None:
    for _, plan in plans():
        assert from_json(to_json(plan)) == plan


def test_a_plan_without_jobs_as_data_is_read_too() -> None:
    plan = next(plan for case, plan in plans() if case.site == "lumi-g")
    content = json.loads(to_json(plan))
    for step in content["steps"]:
        del step["job"]
    assert {step.job for step in from_json(json.dumps(content)).steps} == {None}


def test_the_account_is_never_guessed() -> None:
    recipe, _ = recipes()["mnist"]
    for name in ("lumi-g", "frontier", "dawn", "mn5"):
        site = load_site(name)
        target = resolve(recipe, site, context=Context(tool="recipe 0.0.0"))
        for job in site.scheduler.jobs.values():
            assert not [line for line in make_batch_header(make_step_job(target, job, name="x")) if "account" in line]
        target = resolve(recipe, site, context=Context(tool="recipe 0.0.0", account="project_1"))
        for job in site.scheduler.jobs.values():
            assert "#SBATCH --account=project_1" in make_batch_header(make_step_job(target, job, name="x"))


@rows(("minutes", "time"), [(15, "00:15:00"), (60, "01:00:00"), (90, "01:30:00"), (3000, "50:00:00")])
def test_time_limits_are_hours_and_minutes(minutes: int, time: str) -> None:
    from dataclasses import replace

    site = load_site("lumi-g")
    target = resolve(recipes()["mnist"][0], site, context=Context())
    job = replace(site.scheduler.jobs["gpu"], minutes=minutes)
    assert f"#SBATCH --time={time}" in make_batch_header(make_step_job(target, job, name="x"))


@pytest.mark.parametrize(
    ("stem", "site", "codes"),
    [
        ("plots", "lumi-g", ["cotainr-system", "cotainr-files", "cotainr-labels"]),
        ("full", "lumi-c", ["cotainr-system", "cotainr-files", "cotainr-run", "cotainr-labels", "cotainr-constraints"]),
    ],
)
def test_a_backend_refuses_what_it_cannot_serve(stem: str, site: str, codes: list[str]) -> None:
    found = compiled(Case(stem=stem, site=site, backend="cotainr"))
    assert not isinstance(found, Plan)
    assert [finding.code for finding in select_errors(found)] == codes
    assert all(
        finding.at and finding.at.file == f"{stem}.yml" and finding.at.line for finding in select_errors(found)[:-1]
    )


def test_an_unknown_backend_is_refused_with_those_of_the_site() -> None:
    with pytest.raises(UnsupportedError):
        resolve(recipes()["mnist"][0], load_site("lumi-g"), context=Context(backend="docker"))
    with pytest.raises(ConfigError) as caught:
        resolve(recipes()["mnist"][0], load_site("lumi-g"), context=Context(backend="dockr"))
    assert caught.value.findings[0].message == "the site 'lumi-g' has no backend 'dockr'"
    assert caught.value.findings[0].fix == "its backends: apptainer, cotainr, layers, tykky"


def test_docker_runs_the_image_before_it_is_saved() -> None:
    plan = target_plan(recipes()["finetune"][0], site="mn5", backend="docker")
    text = next(file.text for file in plan.files if file.path == "1-build-image.sh")
    run = text.index("docker run")
    assert text.index("docker build") < run < text.index("docker save")
    assert "--network=none" in text[run : text.index("docker save")]
