"""Plans executed with real processes: small bash scripts stand where engines would be."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_plans import HOLDER, MAKES_IMAGE, OLD, Place, plan_of, until

from builder.execute.build_options import ExecutionOptions
from builder.execute.plan_executor import execute, raise_on_failure
from builder.execute.progress import QuietProgress
from builder.model.finding import BuilderError, ConfigError, StepError, ToolError
from builder.model.plan import Plan


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_build_gives_its_image_and_its_report(place: Place) -> None:
    report = place.execute(plan_of(prepare="echo ready", build=MAKES_IMAGE))
    assert report.status == "passed"
    raise_on_failure(report)
    assert place.output.read_text() == "image\n"
    assert report.image == str(place.output)
    assert report.image_bytes == 6
    assert report.image_sha256 == hashlib.sha256(b"image\n").hexdigest()
    assert [(step.name, step.status, step.exit_code) for step in report.steps] == [
        ("prepare", "ok", 0),
        ("build", "ok", 0),
    ]
    assert place.log("prepare") == "ready\n"
    assert report.steps[0].log == "logs/prepare.log"
    assert place.clean()


def test_the_report_file_says_all_of_it(place: Place) -> None:
    report = place.execute(plan_of(build={"text": MAKES_IMAGE, "programs": ("bash|dash",)}))
    written = json.loads((place.kit / "report.json").read_text())
    assert written["image_sha256"] == report.image_sha256
    assert written["target"] == "demo.local.apptainer"
    assert written["steps"][0]["name"] == "build"
    assert written["seconds"] > 0
    assert written["versions"]["bash"].startswith("GNU bash")
    assert sorted(written) == list(written)


@pytest.mark.parametrize("ending", ["", ".cdx.json", ".provenance.json"])
def test_a_file_made_during_a_build_is_not_replaced(place: Place, ending: str) -> None:
    made = place.output.with_name(place.output.name + ending)
    report = place.execute(plan_of(build=f"{MAKES_IMAGE}\necho mine > {made}"), force=True)
    with pytest.raises(StepError) as caught:
        raise_on_failure(report)
    (finding,) = caught.value.findings
    assert finding.code == "not-published"
    assert f"'{made}' was made while the image was built" in finding.message
    assert str(place.kit / "image.sif") in finding.message
    assert made.read_text() == "mine\n"
    assert (place.kit / "image.sif").read_text() == "image\n"
    assert place.output.exists() == (not ending)


def test_a_failing_step_ends_the_build_and_is_explained(place: Place) -> None:
    place.output.write_bytes(OLD)
    failing = "echo one >&2; echo 'cp: x: No space left on device'; exit 9"
    report = place.execute(plan_of(build=failing, after="touch after", smoke="touch smoked"), force=True)
    assert report.status == "failed"
    assert [step.status for step in report.steps] == ["failed", "skipped", "skipped"]
    assert report.steps[0].exit_code == 9
    (finding,) = report.findings
    assert finding.code == "no-space"
    assert finding.at is not None
    assert finding.at.file == str(place.kit / "logs/build.log")
    with pytest.raises(StepError) as caught:
        raise_on_failure(report)
    assert caught.value.exit_code == 5
    assert place.output.read_bytes() == OLD
    assert not (place.kit / "after").exists()
    assert place.log() == "one\ncp: x: No space left on device\n"
    assert place.clean()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("true", "step 'build' ended with exit code 0 but wrote no 'image.sif'"),
        (">image.sif", "step 'build' ended with exit code 0 but left 'image.sif' empty"),
        ("mkdir image.sif", "step 'build' ended with exit code 0 but left the folder 'image.sif' empty"),
        ("echo 'You have chosen not to overwrite a.sif. Exiting.'", "step 'build' failed: 'a.sif' exists"),
    ],
)
def test_exit_code_0_is_not_enough(place: Place, text: str, message: str) -> None:
    report = place.execute(plan_of(build=text))
    assert report.status == "failed"
    assert report.findings[0].message.startswith(message)
    assert not place.output.exists()


def test_a_product_of_an_earlier_build_does_not_count(place: Place) -> None:
    place.write(plan_of(build="true"))
    (place.kit / "image.sif").write_text("stale")
    report = place.execute(plan_of(build="cat image.sif"))
    assert report.status == "failed"
    assert "left the old 'image.sif' as it was" in report.findings[0].message
    assert not place.output.exists()


def test_sigkill_is_taken_for_memory(place: Place) -> None:
    report = place.execute(plan_of(build="kill -9 $$"))
    assert report.findings[0].code == "no-memory"
    assert report.steps[0].exit_code == 137


# what is refused before any work


def refused(place: Place, plan: Plan, error: type[BuilderError], **options: Any) -> str:
    with pytest.raises(error) as caught:
        place.execute(plan, **options)
    assert not (place.kit / "logs").exists()
    assert place.clean()
    return caught.value.findings[0].code


def test_an_output_that_exists(place: Place) -> None:
    place.output.write_bytes(OLD)
    assert refused(place, plan_of(build=MAKES_IMAGE), ConfigError) == "output-exists"
    assert place.output.read_bytes() == OLD
    assert place.execute(plan_of(build=MAKES_IMAGE), force=True).status == "passed"
    assert place.output.read_text() == "image\n"


def test_a_program_that_is_missing(place: Place) -> None:
    plan = plan_of(build={"text": MAKES_IMAGE, "programs": ("no-such-engine",)})
    assert refused(place, plan, ToolError) == "no-program"


def test_too_little_space(place: Place) -> None:
    assert refused(place, plan_of(build={"text": MAKES_IMAGE, "space_gib": 1e6}), ToolError) == "no-space"


def test_a_tmpdir_that_is_not_there(place: Place) -> None:
    place.tmp.rmdir()
    with pytest.raises(ToolError):
        place.execute(plan_of(build=MAKES_IMAGE))


def test_two_builds_at_once(place: Place) -> None:
    plan = plan_of(build=MAKES_IMAGE)
    place.write(plan)
    ready = place.root / "ready"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(place.kit), str(ready)], stdin=subprocess.PIPE) as other:
        until(ready.exists)
        options = ExecutionOptions(environment=os.environ, tmpdir=place.tmp)
        with pytest.raises(ConfigError) as caught:
            execute(plan, folder=place.kit, output=place.output, options=options, progress=QuietProgress())
        assert caught.value.findings[0].message.startswith(
            f"another build of this output is running (pid {other.pid} on "
        )
        other.kill()
    assert place.execute(plan).status == "passed"


# starting again


def test_from_a_later_step(place: Place) -> None:
    plan = plan_of(prepare={"text": "date >>ran; echo x >base", "produces": ("base",)}, build="cat base >image.sif")
    with pytest.raises(ConfigError) as caught:
        place.execute(plan, start="build")
    assert caught.value.findings[0].message == "step 'prepare' is skipped, and its product 'base' is not there"
    assert place.execute(plan).status == "passed"
    report = place.execute(plan, start="build", force=True)
    assert [step.status for step in report.steps] == ["skipped", "ok"]
    assert len((place.kit / "ran").read_text().splitlines()) == 1
    assert place.output.read_text() == "x\n"


def test_a_step_in_place_does_not_change_the_published_image(place: Place) -> None:
    assert place.execute(plan_of(build="echo good >image.sif")).status == "passed"
    assert place.execute(plan_of(build="echo bad >image.sif; exit 1"), force=True).status == "failed"
    assert place.output.read_text() == "good\n"


def test_the_smoke_test_alone_needs_no_force(place: Place) -> None:
    plan = plan_of(build=MAKES_IMAGE, smoke={"text": "test -s image.sif", "produces": ()})
    assert place.execute(plan).status == "passed"
    report = place.execute(plan, start="smoke")
    assert report.status == "passed"
    assert report.image_sha256 == hashlib.sha256(b"image\n").hexdigest()
    assert not place.output.is_symlink()


def test_the_earlier_log_is_kept(place: Place) -> None:
    place.execute(plan_of(build="echo first; exit 1"))
    place.execute(plan_of(build="echo second; exit 1"))
    assert place.log() == "second\n"
    assert (place.kit / "logs/build.previous.log").read_text() == "first\n"


@pytest.mark.parametrize(("architectures", "told"), [("[]", True), ('["gfx90a"]', False)])
def test_a_torch_that_hides_its_build_gives_a_note(place: Place, architectures: str, told: bool) -> None:
    found = f'{{"torch": "2.8.0+rocm6.4", "hip": "6.4", "architectures": {architectures}}}'
    answer = f"""echo '{{"event": "answer", "answer": {{"found": {found}}}}}' >>"$RECIPE_EVENTS"\n"""
    plan = replace(plan_of(build=MAKES_IMAGE + answer), expect={"architecture": "gfx90a"})
    report = place.execute(plan)
    assert report.status == "passed"
    assert [finding.code for finding in report.findings] == (["architecture-unknown"] if told else [])
    assert all(finding.level == "note" and "gfx90a is not proven" in finding.message for finding in report.findings)
