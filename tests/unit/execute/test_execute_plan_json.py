"""plan.json: the same plan, the same bytes, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.rows import rows

from builder.model.finding import ConfigError, Finding, Location
from builder.model.plan import Copy, PackageDecision, Plan, PlanFile, Step, from_json, to_json

FULL: dict[str, Any] = {
    "copies": (Copy(source="smoke", path="smoke", bundled=True), Copy(source="/data/ä b", path="data")),
    "packages": (PackageDecision(asked="torch==2.6.0", became="torch==2.6.0+rocm6.2.4", why="amd"),),
    "findings": (
        Finding(code="a", message="b", fix="c", at=Location(file="env.yml", line=3, key="x.y"), level="warning"),
        Finding(code="d", message="e", fix="f"),
    ),
    "expect": {"vendor": "amd", "torch": "2.6.0"},
    "tool": "recipe 0.1.0",
}


def full(plan_of: Callable[..., Plan]) -> Plan:
    step = {
        "text": "echo 'a\n\t\"ü\u2028\" $X'\n",
        "produces": ("image.sif", "b.json"),
        "programs": ("a|b",),
        "space_gib": 0.5,
    }
    return plan_of({"build": step, "run": {"text": "", "kind": "smoke", "batch": "3.sbatch", "where": "site"}}, **FULL)


def test_round_trip(plan_of: Callable[..., Plan]) -> None:
    for plan in (plan_of(), full(plan_of)):
        text = to_json(plan)
        assert from_json(text) == plan
        assert to_json(from_json(text)) == text


def test_the_text_does_not_depend_on_the_order_of_keys(plan_of: Callable[..., Plan]) -> None:
    text = to_json(plan_of(expect={"b": "1", "a": "2"}))
    assert text == to_json(plan_of(expect={"a": "2", "b": "1"}))
    assert text.endswith("}\n")
    keys = list(json.loads(text))
    assert keys == sorted(keys)


def test_whole_numbers_stand_for_fractions(plan_of: Callable[..., Plan]) -> None:
    text = to_json(plan_of()).replace('"space_gib": 0.0', '"space_gib": 3')
    plan = from_json(text)
    assert plan.steps[0].space_gib == 3.0
    assert isinstance(plan.steps[0].space_gib, float)


def change(plan: Plan, path: list[str | int], value: Any) -> str:
    content = json.loads(to_json(plan))
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(content)


@rows(
    ("path", "value", "key", "message"),
    [
        (["schema"], 2, "schema", "the plan has schema 2, this version reads 1"),
        (["schema"], True, "schema", "the plan has schema True, this version reads 1"),
        (["image"], 3, "image", "expected text, found 3"),
        (["image"], None, "", "'image' is missing"),
        (["more"], 1, "more", "'more' is not a key of a plan"),
        (["image_kind"], "iso", "image_kind", "expected 'sif' or 'folder', found \"iso\""),
        (["steps"], {}, "steps", "expected a list, found {}"),
        (["steps", 0, "kind"], [1], "steps[0].kind", "expected 'build' or"),
        (["steps", 0, "produces", 0], False, "steps[0].produces[0]", "expected text, found false"),
        (["steps", 0, "space_gib"], True, "steps[0].space_gib", "expected a number, found true"),
        (["files", 0, "executable"], 1, "files[0].executable", "expected true or false, found 1"),
        (["findings", 0, "at"], [], "findings[0].at", "expected an object, found []"),
        (["findings", 0, "at", "line"], 1.5, "findings[0].at.line", "expected a whole number, found 1.5"),
        (["expect", "torch"], 2, "expect.torch", "expected text, found 2"),
        (["expect"], "x" * 99, "expect", "..."),
    ],
)
def test_faults_name_their_key(
    plan_of: Callable[..., Plan], path: list[str | int], value: Any, key: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        from_json(change(full(plan_of), path, value), file="kit/plan.json")
    (finding,) = caught.value.findings
    assert finding.at == Location(file="kit/plan.json", key=key)
    assert message in finding.message
    assert finding.fix


@rows("text", ["", "{", "[]", "null", "[" * 100_000, '"plan"', "{}"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        from_json(text)


def test_every_field_of_a_step_is_kept() -> None:
    step = Step(
        name="n", kind="save", why="w", script="s", produces=("p",), programs=("q",), space_gib=1.5, batch="b",
        where="workstation",
    )  # fmt: skip
    plan = Plan(
        target="t", recipe="r", site="s", backend="docker", vendor="cpu", image="i", image_kind="folder", base="b",
        steps=(step,), files=(PlanFile(path="f", text="x", executable=True),),
    )  # fmt: skip
    assert from_json(to_json(plan)) == plan
