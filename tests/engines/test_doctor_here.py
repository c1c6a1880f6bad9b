"""recipe doctor with the real engines, the real Docker daemon and Slurm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recipe_program import Room

PATIENCE = Path(__file__).parent / "stand_ins" / "patience"


def readings(room: Room, code: int, *words: str, **environment: str) -> dict[str, dict[str, Any]]:
    environment["PYTHONPATH"] = str(PATIENCE)
    done = room.recipe("doctor", *words, "--offline", "--format", "json", **environment).expect(code)
    return {one["name"]: one for one in json.loads(done.out)["readings"]}


def test_what_is_here_is_said_with_its_version(tmp_path: Path) -> None:
    room = Room(tmp_path)
    found = readings(room, 0, "mn5")
    assert "keeps images in /" in found["daemon"]["says"]
    assert "GiB free" in found["daemon"]["says"]
    assert found["buildx"]["state"] == "ok"
    assert found["apptainer"]["says"].startswith("apptainer version 1.")
    assert found["mksquashfs"]["says"].startswith("mksquashfs version 4.")
    assert found["controller"]["says"].endswith("is UP")
    assert readings(room, 0, "local")["uv"]["state"] == "ok"
    assert readings(room, 0)["mn5"]["state"] == "ok"
    assert room.left_behind() == []


def test_a_stopped_daemon_is_bad_where_it_makes_the_images(tmp_path: Path) -> None:
    room = Room(tmp_path)
    stopped = f"unix://{tmp_path}/stopped.sock"
    daemon = readings(room, 4, "mn5", DOCKER_HOST=stopped)["daemon"]
    assert (daemon["state"], "no daemon listens" in daemon["says"]) == ("bad", True)
    assert "start it" in daemon["fix"]
    assert readings(room, 0, "local", DOCKER_HOST=stopped)["daemon"]["state"] == "none"


def test_fixes_stand_below_what_they_repair(tmp_path: Path) -> None:
    lines = Room(tmp_path).recipe("doctor", "lumi-g", "--offline").expect(4).out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  BAD  base image"))
    assert lines[at + 1].startswith("    fix: log in to 'lumi-g'")
