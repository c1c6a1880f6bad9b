"""`recipe build local` with real Apptainer: what a first user does, and what is in the image afterwards."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_program import ALONE, TINY, Built, Room, inside, labels, listing, report_of, run, superblocks

pytestmark = pytest.mark.engines


# --- the example -----------------------------------------------------------------------------------------------------


def test_the_example_is_built_and_trains(digits: Built) -> None:
    assert digits.done.out == f"{digits.image}\n"
    report = report_of(digits.plan)
    assert (report["status"], report["findings"]) == ("passed", [])
    assert [step["status"] for step in report["steps"]] == ["ok", "ok"]
    assert report["image_bytes"] == digits.image.stat().st_size
    assert report["checks"]
    assert all(check["ok"] for check in report["checks"])
    assert report["versions"]["apptainer"].startswith("apptainer version 1.")


def test_each_next_line_of_a_build_runs(digits: Built, tiny: Built) -> None:
    for built in (digits, tiny):
        lines = [line.removeprefix("next: ") for line in built.done.err.splitlines() if line.startswith("next: ")]
        assert [line.split()[1] for line in lines] == ["run", "report", "inspect"]
        for line in lines:
            program, *words = shlex.split(line)
            assert program == "recipe"
            built.room.recipe(*words).expect(0)


def test_the_numbers_of_the_training(digits: Built) -> None:
    smoke = report_of(digits.plan)["smoke"]
    assert smoke["mnist"]["data"] == {"source": "drawn", "train": 4000, "test": 1000}
    assert smoke["mnist"]["accuracy"] >= 0.93
    assert smoke["mnist"]["training"]["last_loss"] < smoke["mnist"]["training"]["first_loss"]
    ranks = smoke["ddp"]["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    assert len({rank["checksum"] for rank in ranks}) == 1
    assert smoke["ddp"]["accuracy"] >= 0.9
    assert {item["name"] for item in smoke["imports"]["imports"]} == {"torch", "numpy"}


def test_the_image_is_packed_with_zstd_and_compiled(digits: Built) -> None:
    assert "Compression zstd" in superblocks(digits.image)[-1]
    paths = listing(digits.image)
    # No program imports the test suites that wheels bring along: layers leave them as they are.
    ours = [path for path in paths if path.startswith("/opt/env/lib/python3.11/site-packages/")]
    sources = [path for path in ours if ".py" in path and "/tests/" not in path]
    compiled = [path for path in sources if path.endswith(".pyc")]
    assert len(compiled) >= 0.95 * len([path for path in sources if path.endswith(".py")])
    assert "/opt/env/lib/python3.11/site-packages/torch/__pycache__/__init__.cpython-311.pyc" in paths


def test_nothing_of_the_build_is_in_the_image(digits: Built, tiny: Built) -> None:
    for image in (digits.image, tiny.image):
        paths = listing(image)
        for gone in ("/root/.cache", "/opt/recipe/build", "/opt/recipe/tools", "/opt/recipe/micromamba", "/mnt/cache"):
            assert not [path for path in paths if path.startswith(gone)], gone
        assert sorted(path for path in paths if path.startswith("/opt/recipe/")) == [
            "/opt/recipe/recipe.json", "/opt/recipe/verify.py",
        ]  # fmt: skip


def test_real_digits_reach_95_percent(digits: Built, room: Room) -> None:
    data = os.environ.get("RECIPE_TEST_MNIST")
    if not data:
        pytest.skip("RECIPE_TEST_MNIST names no folder with MNIST's four files; they are not part of the repository")
    out = room.folder / "real"
    words = ("smoke", "local", digits.image, "--data", data, "--workload", "mnist", "-o", out)
    room.recipe(*words, **ALONE).expect(0)
    result = json.loads((out / "smoke-mnist.json").read_text())
    assert result["data"] == {"source": "mnist", "train": 8000, "test": 2000}
    assert result["accuracy"] >= 0.95


# --- every key of a recipe -------------------------------------------------------------------------------------------


def test_what_a_recipe_says_is_in_the_image(tiny: Built) -> None:
    assert inside(tiny.image, "cat", "/opt/notes/notes.txt", "/opt/notes/made.txt") == "hello\nmade\n"
    assert inside(tiny.image, "less", "--version").startswith("less ")
    assert inside(tiny.image, "python3", "-c", "import six, sys; print(six.__version__, sys.prefix)") == (
        "1.16.0 /opt/env\n"
    )
    found = labels(tiny.image)
    assert found["purpose"] == 'a test, "quoted"'
    assert (found["recipe.name"], found["recipe.site"]) == ("tiny", "local")
    assert len(found["recipe.digest"]) == 64


@pytest.mark.parametrize("way", ["exec", "run", "shell"])
def test_variables_hold_however_the_image_is_entered(tiny: Built, way: str) -> None:
    script = 'echo "$COLOUR|$PRICE|$PYTHONNOUSERSITE|$VIRTUAL_ENV|$(command -v python3)"'
    if way == "shell":
        done = run(["apptainer", "--quiet", "shell", tiny.image], stdin=f"{script}\n")
    else:
        done = run(["apptainer", way, tiny.image, "sh", "-c", script])
    assert done.expect(0).out.strip() == "deep blue|5 $HOME `id` 'x'|1|/opt/env|/opt/env/bin/python3"


def test_anyone_may_read_the_image(tiny: Built) -> None:
    # Its builder's umask was 077, and the files in it belong to root: neither they nor anyone else could read them.
    ours = ("/opt/env", "/opt/recipe", "/opt/notes", "/.singularity.d")
    closed = {
        path: mode
        for path, mode in listing(tiny.image).items()
        if path.startswith(ours) and (mode[7] != "r" or (mode[0] == "d" and mode[9] not in "xt"))
    }
    assert closed == {}


# --- builds that come after a build ----------------------------------------------------------------------------------


def stamp(path: Path) -> tuple[int, int]:
    return path.stat().st_ino, path.stat().st_mtime_ns


def test_the_same_build_again_does_nothing(first_tiny: Built, base_sif: Path) -> None:
    before = stamp(first_tiny.image)
    done = first_tiny.build("--base", base_sif).expect(0)
    assert "nothing to do" in done.err
    assert stamp(first_tiny.image) == before


def test_another_build_does_not_replace_an_image_unasked(tiny: Built, base_sif: Path) -> None:
    other = tiny.room.write("other.yml", TINY.replace("1.16.0", "1.17.0"))
    before = stamp(tiny.image), labels(tiny.image)
    done = tiny.room.recipe("build", "local", other, "--base", base_sif, "-o", tiny.image).expect(2)
    assert "exists" in done.err
    assert "--force" in done.err
    assert (stamp(tiny.image), labels(tiny.image)) == before


def test_force_replaces_and_from_smoke_tests_again(rooms: Callable[[str], Room], tiny: Built, base_sif: Path) -> None:
    room = rooms("force")
    room.write("notes.txt", "hello\n")
    image = room.folder / "x.sif"
    shutil.copy(tiny.image, image)
    before = stamp(image)
    recipe = room.write("tiny.yml", TINY.replace("1.16.0", "1.17.0"))
    words = ("build", "local", recipe, "--base", base_sif, "-o", image)
    room.recipe(*words, "--force").expect(0)
    assert stamp(image) != before
    assert inside(image, "python3", "-c", "import six; print(six.__version__)") == "1.17.0\n"
    before = stamp(image)
    room.recipe(*words, "--from", "smoke").expect(0)
    assert stamp(image) == before
    statuses = {step["name"]: step["status"] for step in report_of(room.folder / "x.plan")["steps"]}
    assert statuses == {"build-image": "skipped", "smoke": "ok"}
    assert room.left_behind() == []
    room.write("tiny.yml", TINY)
    names = ("x.sif", "x.sif.cdx.json", "x.sif.provenance.json", "x.plan/report.json", "x.plan/plan.json")
    records = {name: (room.folder / name).read_bytes() for name in names}
    for more in ((), ("-n",), ("--force",)):
        refused = room.recipe(*words, "--from", "smoke", *more).expect(2)
        assert "was not made from this recipe" in refused.err
    assert {name: (room.folder / name).read_bytes() for name in names} == records


def test_a_plan_runs_by_hand(room: Room, base_sif: Path) -> None:
    recipe = room.write("hand.txt", "six==1.16.0\n")
    plan = room.folder / "kit"
    room.recipe("plan", "local", recipe, "--base", base_sif, "-o", plan).expect(0)
    environment = room.environment()
    run(["bash", plan / "1-build-image.sh"], env=environment).expect(0)
    answer = run(
        ["bash", "run/one.sh", "python3", "-c", "import six; print(six.__version__)"], env=environment, cwd=plan
    )
    assert answer.expect(0).out == "1.16.0\n"
    assert room.left_behind() == []
