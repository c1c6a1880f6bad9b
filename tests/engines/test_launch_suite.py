"""The suite through the generated job scripts on two nodes: a kit works by sbatch and bash alone; its verdicts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recipe_program import Built, Done, Room, run
from testbed import LIMIT, Kit, near_the_limit

pytestmark = pytest.mark.engines


def verdict_of(folder: Path, shape: str) -> dict[str, Any]:
    return dict(json.loads((folder / shape / "verdict.json").read_text()))


@pytest.fixture
def read_only(room: Room, digits: Built) -> Iterator[Kit]:
    """A kit that nobody may write to, as a shared copy is."""
    kit = Kit(room, "cpu-test", digits.image)
    kit.shorten_training("--epochs", "2")
    places = [kit.folder, *kit.folder.rglob("*")]
    for place in places:
        place.chmod(place.stat().st_mode & ~0o222)
    yield kit
    for place in places:
        place.chmod(place.stat().st_mode | 0o200)


def test_two_nodes_pass_from_a_read_only_plan_folder(read_only: Kit, room: Room, easy_digits: Path) -> None:
    here = room.folder / "here"
    here.mkdir()

    def submit(**environment: str) -> Done:
        settings = read_only.environment | {"RECIPE_FOLDER": str(read_only.folder)} | environment
        return run(["sbatch", "--wait", read_only.folder / "run" / "nodes.sbatch"], cwd=here, env=settings)

    submit().expect(1)
    (log,) = here.glob("*.log")
    assert "name another folder by RECIPE_RESULTS=/path" in log.read_text()
    assert "== probe" not in log.read_text()  # nothing was started
    log.unlink()
    done = submit(RECIPE_RESULTS=str(here / "out"), RECIPE_MNIST=str(easy_digits))
    (log,) = here.glob("*.log")
    assert done.code == 0, log.read_text()
    verdict = verdict_of(here / "out", "nodes")
    assert verdict["verdict"] == "pass"
    (record,) = (here / "out" / "jobs").glob("*.json")
    assert json.loads(record.read_text())["exit_code"] == 0
    assert set(verdict["workloads"]) == {"probe", "ddp", "pi", "allreduce", "startup"}
    trained = json.loads((here / "out" / "nodes" / "ddp.json").read_text())
    assert trained["data"]["source"] == "mnist"
    ranks = json.loads((here / "out" / "nodes" / "probe.json").read_text())["ranks"]
    assert [rank["variables"]["SITE_TEST_MARK"] for rank in ranks] == ["of the site"] * 2


def test_an_image_without_torch_fails(room: Room, base_sif: Path) -> None:
    kit = Kit(room, "cpu-test", base_sif)
    job = kit.job("run/gpu.sbatch").expect(1)
    verdict = verdict_of(kit.folder / "results", "gpu")
    assert verdict["verdict"] == "FAIL"
    assert [entry["verdict"] for entry in verdict["workloads"].values()] == ["FAIL"] * 3
    assert all("torch" in entry["error"] for entry in verdict["workloads"].values())
    assert (job.record["exit_code"], job.record["shape"]) == (1, "gpu")


def test_an_image_that_does_not_start_fails_by_name(room: Room) -> None:
    kit = Kit(room, "cpu-test", room.write("no.sif", "this is no image\n"))
    kit.job("run/node.sbatch").expect(1)
    verdict = verdict_of(kit.folder / "results", "node")
    assert verdict["verdict"] == "FAIL"
    assert verdict["reason"] == "the image did not start a Python that could judge (exit code 255)"


def until_trained(kit: Kit, *, samples: int) -> dict[str, Any]:
    """What rank 0 says of itself once it has trained on that many images."""
    path = kit.folder / "results" / "node" / "ddp.json.rank0.json"
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        found = json.loads(path.read_text()) if path.exists() else {}
        if found.get("samples", 0) >= samples:
            return dict(found)
        time.sleep(0.2)
    raise AssertionError("no training in time")


def test_a_training_saved_at_the_limit_continues_in_the_next_job(room: Room, digits: Built) -> None:
    """A process of the task mounts the image: a signal of Slurm's would end that before the training could save."""
    kit = Kit(room, "cpu-test", digits.image)
    script = kit.folder / "run" / "node.sbatch"
    text = re.sub(r"(?m)^begin_suite node .*", "begin_suite node ddp", script.read_text())
    text = re.sub(r"(?m)^(?:every_rank|one_process) (?!ddp )(?:.*\\\n)*.*\n", "", text)  # the training alone
    script.write_text(text)
    kit.shorten_training("--samples", "256", "--epochs", "4000")  # short epochs, and many
    number = kit.submit("run/node.sbatch")
    until_trained(kit, samples=1)
    near_the_limit(str(number), by_hand=True)  # one that has passed would end it at once
    record = kit.ended(number)
    result = json.loads((kit.folder / "results" / "node" / "ddp.json").read_text())
    assert record["reason"] == "time limit"
    assert record["exit_code"] in (
        143,
        1,
    )  # srun ends a rank when another one fails, and reports the first that it sees
    assert "ended by SIGTERM after step" in result["error"]
    assert verdict_of(kit.folder / "results", "node")["reason"] == "time limit, in ddp"
    assert (kit.folder / "results" / "node" / "ddp-2.snapshot").exists()
    (kit.folder / "results" / "node" / "ddp.json.rank0.json").unlink()  # or it would be taken for the next one's
    number = kit.submit("run/node.sbatch")
    found = until_trained(kit, samples=1)
    assert (found["resumed_from_epoch"], found["training"]["resumed_step"]) > (0, 0)
    run(["scancel", str(number)]).expect(0)
    assert kit.ended(number)["reason"] == "cancelled"
