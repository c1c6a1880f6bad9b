"""The lines `next:` after a build, and the documents of `recipe status` and `recipe doctor`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from builder.cli.init import RECIPES
from builder.cli.main import run, run_cli
from builder.cli.output import emit_document
from builder.cli.status import describe_jobs, find_plan_folder
from builder.cli.terminal import make_next_lines
from builder.compile.compile import compile_plan
from builder.execute.doctor_readings import Reading
from builder.model.finding import ConfigError
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import find_site_files, load_site
from builder.pipeline.request import Build
from builder.pipeline.resolution import resolve_recipe
from builder.slurm.client import JobState
from builder.slurm.ledger import JobRecord
from builder.slurm.submitted_jobs import JobView

PROGRAM = "python3 -c 'import torch; print(torch.__version__)'"


def lines_of(site: str, output: str, *, recipe: str = "mnist-local.yml", account: str = "") -> list[str]:
    return make_next_lines(make_build(site, output, recipe=recipe, account=account))


def make_build(site: str, output: str, *, recipe: str = "mnist-local.yml", account: str = "") -> Build:
    found, loaded = load_site(site), load_recipe(RECIPES / recipe)
    context = Context(base="docker://ubuntu:24.04", account=account)
    plan = compile_plan(resolve_recipe(found, loaded, context=context))
    return Build(plan=plan, site=found, recipe=loaded, context=context, image=Path(output))


def test_away_from_the_site_no_job_is_submitted() -> None:
    build = make_build("lumi-c", "x.sif")
    assert make_next_lines(build, elsewhere=True) == [
        f"next: recipe run --here lumi-c x.sif -- {PROGRAM}", "next: recipe report x.sif", "next: recipe inspect x.sif"
    ]  # fmt: skip


def test_an_image_whose_name_begins_with_a_dash_is_no_option() -> None:
    assert lines_of("local", "-x.sif")[0].split()[3:5] == ["local", "./-x.sif"]


@pytest.mark.parametrize(
    ("site", "found"),
    [
        ("local", [f"recipe run local x.sif -- {PROGRAM}", "recipe report x.sif", "recipe inspect x.sif"]),
        (
            "lumi-c",
            [
                f"recipe run lumi-c x.sif -- {PROGRAM}",
                "recipe report x.sif",
                f"recipe run lumi-c x.sif --submit --nodes 2 --account=NAME -- {PROGRAM}",
            ],
        ),
    ],
)
def test_three_lines_say_what_comes_next(site: str, found: list[str]) -> None:
    assert lines_of(site, "x.sif") == [f"next: {line}" for line in found]


def test_the_next_line_has_the_account_and_a_module_of_the_image() -> None:
    assert " --account=project_1 -- " in lines_of("lumi-g", "x.sif", recipe="mnist.yml", account="project_1")[2]
    assert lines_of("local", "x.sif", recipe="climate.yml")[0].endswith(" -- python3 -c 'import numpy'")


@pytest.mark.parametrize("site", sorted(find_site_files()))
def test_each_next_line_is_a_command_that_is_understood(site: str) -> None:
    """Its words are read by the command's own parser; a name with a blank stays one word, and no file is named."""
    for line in lines_of(site, "my images/x.sif", recipe="mnist-local.yml" if site == "local" else "mnist.yml"):
        program, command, *words = shlex.split(line.removeprefix("next: "))
        assert program == "recipe"
        assert [word for word in words if word.endswith(".py")] == []
        found = run_cli.get_command(click.Context(run_cli), command)
        assert found is not None
        context = found.make_context(command, list(words))  # it takes words out of the list
        assert "my images/x.sif" in words
        assert context.command is found


def printed(capsys: pytest.CaptureFixture[str], **more: Any) -> dict[str, Any]:
    emit_document(describe_jobs(Path("/x.plan"), kind="build", **more))
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_document_of_status(capsys: pytest.CaptureFixture[str]) -> None:
    record = JobRecord(job="12", exit_code=0, reason="", started=1.0, ended=3.0)
    state = JobState(stage="waiting", word="PENDING", reason="(Priority)")
    views = (
        JobView(step="build-image", job="12", state=None, record=record, log="a-12.log"),
        JobView(step="smoke", job="13", state=state, record=None, log=""),
        JobView(step="verify", job="14", state=None, record=None, log=""),
    )
    found = printed(capsys, views=views)
    assert list(found) == ["schema", "folder", "kind", "verdict", "image", "jobs"]
    assert (found["schema"], found["folder"], found["kind"]) == (1, "/x.plan", "build")
    assert (found["verdict"], found["image"]) == (None, None)
    keys = ("step", "job", "state", "over", "exit_code", "log")
    assert found["jobs"] == [
        dict(zip(keys, values, strict=True))
        for values in (
            ("build-image", "12", "ended after 2.0 s", True, 0, "a-12.log"),
            ("smoke", "13", "waits (Priority)", False, None, None),
            ("verify", "14", "Slurm does not answer", False, None, None),
        )
    ]


READINGS = [
    Reading(name="apptainer", state="ok", says="apptainer version 1.4.5", group="engines"),
    Reading(name="mksquashfs", state="bad", says="missing", fix="install squashfs-tools", group="engines"),
    Reading(name="gpu", state="none", says=""),
]


@pytest.mark.parametrize(("words", "site"), [((), None), (("lumi-g",), "lumi-g")])
def test_the_document_of_doctor(
    words: tuple[str, ...], site: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was looked at is given: what looks is in tests/commands and tests/engines."""
    monkeypatch.setattr("builder.cli.doctor.examine", lambda *_, **__: iter(READINGS))
    monkeypatch.setattr("builder.cli.doctor.examine_sites", lambda *_, **__: [])
    assert run(["doctor", *words, "--format", "json"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["schema", "site", "readings"]
    assert (found["schema"], found["site"]) == (1, site)
    assert [(one["name"], one["group"]) for one in found["readings"][3:]] == [
        ("user file", "settings"),
        ("system file", "settings"),
    ]
    assert all(one["says"].endswith("config.yaml, missing") for one in found["readings"][3:])
    assert found["readings"][:3] == [
        {"name": "apptainer", "state": "ok", "says": "apptainer version 1.4.5", "fix": None, "group": "engines"},
        {"name": "mksquashfs", "state": "bad", "says": "missing", "fix": "install squashfs-tools", "group": "engines"},
        {"name": "gpu", "state": "none", "says": None, "fix": None, "group": "machine"},
    ]
    monkeypatch.setattr("builder.cli.doctor.examine", lambda *_, **__: iter(READINGS[::2]))
    assert run(["doctor", *words]) == 0


def test_status_names_a_submitted_plan_of_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        find_plan_folder(tmp_path, typed=tmp_path)
    assert caught.value.findings[0].fix.startswith("no jobs were submitted in this folder: name the image")
    for name in ("my env.plan", "not submitted.plan"):
        (tmp_path / name / "jobs").mkdir(parents=True)
        (tmp_path / name / "plan.json").write_text("{}")
    with pytest.raises(ConfigError) as caught:
        find_plan_folder(tmp_path, typed=tmp_path)
    assert caught.value.findings[0].fix.startswith("no jobs were submitted in this folder: name the image")
    (tmp_path / "my env.plan" / "report.json").write_text("{}")
    with pytest.raises(ConfigError) as caught:
        find_plan_folder(tmp_path, typed=tmp_path)
    (found,) = caught.value.findings
    assert found.message.endswith("my env.plan, not submitted.plan")
    assert found.fix == f"`recipe report '{tmp_path}/my env.plan'` shows what was built"
    (tmp_path / "my env.plan" / "jobs" / "submitted.json").write_text("{}")
    with pytest.raises(ConfigError) as caught:
        find_plan_folder(tmp_path, typed=tmp_path)
    assert caught.value.findings[0].fix == f"run `recipe status '{tmp_path}/my env.plan'`"
