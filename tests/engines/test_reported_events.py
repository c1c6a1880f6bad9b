"""What the programs of a real build report while they work, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_program import TORCH, Built, Room, build, report_of
from stand_ins.images import torch_of_few_lines
from stand_ins.wheels import write_wheel

pytestmark = pytest.mark.engines

TEXT = f"name: tables\ndependencies: [pip: ['torch=={TORCH}']]\ncontainer: {{smoke: {{workloads: [pi]}}}}\n"


def is_answered(built: Built) -> None:
    proof = report_of(built.plan)["proof"]
    assert proof["torch"].startswith(TORCH)
    assert proof["python"].startswith("3.11")
    assert "verify: {" in (built.plan / "logs" / "build-image.log").read_text()  # what people read stays
    assert not list(built.plan.rglob("*.events.jsonl"))


def test_the_answer_of_an_image_of_layers_is_in_the_report(digits: Built) -> None:
    is_answered(digits)


def test_the_answer_of_a_flat_image_is_in_the_report(
    room: Room, base_sif: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = f"{TORCH}+cpu"  # what a CPU's image asks for
    write_wheel(room.folder / "wheels", name="torch", version=version, text=torch_of_few_lines(version))
    monkeypatch.setenv("PIP_FIND_LINKS", str(room.folder / "wheels"))
    built = build(room, room.write("tables.yml", TEXT), base_sif, "--backend", "apptainer", "--no-smoke")
    is_answered(built)
    assert report_of(built.plan)["proof"]["torch"] == version
    assert room.left_behind() == []


def test_the_fix_of_our_own_program_is_the_fix_of_the_build(room: Room, base_sif: Path) -> None:
    recipe = room.write("six.yml", "name: six\ndependencies: [pip: [six==0.0.99]]\n")
    empty = str(room.folder / "cache")  # what another test has downloaded gives another message
    words = ("build", "local", recipe, "--base", base_sif, "-o", room.folder / "x.sif", "--offline")
    done = room.recipe(*words, RECIPE_CACHE_DIR=empty).expect(5)
    log = (room.folder / "x.plan" / "logs" / "build-image.log").read_text()
    (fix,) = [line.removeprefix("recipe: fix: ") for line in log.splitlines() if line.startswith("recipe: fix: ")]
    assert fix in done.err
