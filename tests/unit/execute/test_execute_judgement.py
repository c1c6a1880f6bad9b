"""The smoke verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.rows import rows

from builder.execute.judgement import (
    describe_failed_checks,
    judge_answer,
    judge_results,
    note_cpu,
    read_proof,
    read_results,
    select_first_causes,
)
from builder.execute.report_file import report_json
from builder.model.plan import Step
from builder.model.report import Report


def result(**changes: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "schema": 1,
        "workload": "mnist",
        "error": None,
        "expected": {"seconds": 600.0, "device": "auto", "vendor": None, "torch": None},
        "accuracy": 0.97,
        "data": {"source": "drawn"},
        "training": {"first_loss": 2.3, "last_loss": 0.2, "non_finite": 0},
        "device": {"type": "cpu"},
        "torch": {"version": "2.6.0+cpu"},
        "seconds": {"total": 12.0},
    }
    return {**content, **changes}


def test_results_are_judged_by_their_numbers() -> None:
    checks = judge_results({"mnist": result()}, expect={})
    assert describe_failed_checks(checks) == ""
    assert "mnist: accuracy" in [check.name for check in checks]
    bad = judge_results({"mnist": result(accuracy=0.1)}, expect={})
    assert describe_failed_checks(bad) == "mnist: accuracy: 0.1, expected >= 0.9"


def test_the_plan_says_which_build_of_torch_it_must_be() -> None:
    assert describe_failed_checks(judge_results({"mnist": result()}, expect={"torch": "2.6.0+cpu"})) == ""
    assert describe_failed_checks(judge_results({"mnist": result()}, expect={"torch": "2.5.0+cpu"})).startswith(
        "mnist: torch: 2.6.0+cpu"
    )


def test_a_vendor_is_expected_of_a_run_on_its_devices_only() -> None:
    # On a login node the image for AMD GPUs trains on the CPU; the run itself says what it was asked to prove.
    assert describe_failed_checks(judge_results({"mnist": result()}, expect={"vendor": "amd"})) == ""
    asked = result(expected={"vendor": "amd", "device": "cpu", "seconds": 600.0})
    assert "mnist: vendor: cpu" in describe_failed_checks(judge_results({"mnist": asked}, expect={"vendor": "amd"}))


@rows("odd", [None, [], 3, {}, {"schema": 1, "workload": []}, {"expected": 3}])
def test_odd_results_fail(odd: Any) -> None:
    assert describe_failed_checks(judge_results({"mnist": odd}, expect={"vendor": "amd"}))


def test_results_are_read_by_the_names_of_products(tmp_path: Path) -> None:
    names = ("smoke-mnist.json", "smoke-ddp.json", "smoke-broken.json", "other.json")
    step = Step(name="smoke", kind="smoke", why="", script="s", produces=names)
    (tmp_path / "smoke-mnist.json").write_text('{"a": 1}')
    (tmp_path / "smoke-broken.json").write_text("{")
    (tmp_path / "other.json").write_text("{}")
    assert read_results(step, tmp_path) == {"mnist": {"a": 1}, "ddp": None, "broken": None}


def test_a_report_is_json_whatever_an_image_said() -> None:
    report = Report(target="t", status="passed", image="x", steps=(), smoke={"mnist": {"loss": float("nan"), 3: (1,)}})
    content = json.loads(report_json(report))
    assert content["smoke"] == {"mnist": {"loss": "nan", "3": [1]}}
    assert content["schema"] == 1
    assert report_json(report) == report_json(report)


@rows(
    ("text", "answer"),
    [
        ('{"found": {"torch": "2.8.0+rocm6.4", "hip": "6.4"}}', {"torch": "2.8.0+rocm6.4", "hip": "6.4"}),
        ('{"found": [1]}', {}),
        ('{"found": ', {}),
        ("[1]", {}),
    ],
)
def test_the_images_answer_is_read_from_its_file(text: str, answer: dict[str, str], tmp_path: Path) -> None:
    assert read_proof(tmp_path) == {}
    (tmp_path / "proof.json").write_text(text)
    assert read_proof(tmp_path) == answer


def test_the_torch_of_another_vendor_is_the_cause_of_a_failure(tmp_path: Path) -> None:
    step = Step(name="smoke", kind="smoke", why="test it", script="1-smoke.sh", produces=("verify.json",))
    assert judge_answer(step, tmp_path) == ()
    fault = "torch 2.6.0+cpu is not built for intel GPUs"
    (tmp_path / "verify.json").write_text(json.dumps({"expected": {"vendor": "intel"}, "faults": [fault]}))
    answer = judge_answer(step, tmp_path)
    assert [(check.ok, check.measured, check.expected) for check in answer] == [(False, fault, "a build for intel")]
    later = judge_results({"mnist": result(error="no GPU")}, expect={})
    assert select_first_causes((*answer, *later)) == answer
    (tmp_path / "verify.json").write_text(json.dumps({"faults": []}))
    assert judge_answer(step, tmp_path) == ()


def test_a_training_on_the_cpu_of_a_site_with_gpus_is_a_warning() -> None:
    gpu = result(device={"type": "xpu"})
    found = note_cpu({"mnist": result()}, vendor="intel", site="dawn", image="x.sif")
    assert found is not None
    assert (found.code, found.level) == ("smoke-cpu", "warning")
    assert "there is no intel GPU here" in found.message
    assert "`recipe smoke dawn x.sif --submit`" in found.fix
    assert note_cpu({"mnist": gpu}, vendor="intel", site="dawn", image="x.sif") is None
    assert note_cpu({"mnist": result()}, vendor="cpu", site="local", image="x.sif") is None
    assert note_cpu({"imports": {"imports": []}}, vendor="intel", site="dawn", image="x.sif") is None
