"""`recipe smoke`: the smoke test in an image that exists, also one that this tool did not make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recipe_program import Built, Room, run

pytestmark = pytest.mark.engines


def test_a_result_is_kept_where_it_is_asked_for(digits: Built, room: Room) -> None:
    out = room.folder / "kept"
    done = room.recipe("smoke", "local", digits.image, "--workload", "mnist", "-o", out).expect(0)
    assert done.out.endswith("verdict: pass\n")
    result = json.loads((out / "smoke-mnist.json").read_text())
    assert result["accuracy"] >= 0.9
    assert (out / "logs" / "smoke.log").is_file()
    assert not (out / "smoke-ddp.json").exists()
    assert room.left_behind() == []


def test_an_image_without_torch_fails(tiny: Built) -> None:
    done = tiny.room.recipe("smoke", "local", tiny.image, "--workload", "mnist").expect(6)
    assert "FAIL" in done.out
    assert done.out.endswith("verdict: FAIL\n")
    assert "torch cannot be imported" in done.err
    assert done.out.count("FAIL  ") == 1  # the first cause alone
    assert tiny.room.left_behind() == []


def test_an_image_of_another_vendor_is_no_success(tiny: Built) -> None:
    """Stated for LUMI-G, where torch must be built for AMD: an image without torch is told, on this machine's CPU."""
    done = tiny.room.recipe("smoke", "lumi-g", tiny.image, "--workload", "mnist").expect(6)
    assert done.out.endswith("verdict: FAIL\n")


def test_a_file_that_is_no_image(room: Room) -> None:
    image = room.write("none.sif", "this is no image\n")
    done = room.recipe("smoke", "local", image).expect(2)
    assert "is a text file, and not an image" in done.err
    assert room.left_behind() == []


@pytest.mark.parametrize("words", [("missing.sif",), ("x.sif", "--data", "missing")], ids=["image", "data"])
def test_a_path_that_does_not_exist_is_said(room: Room, words: tuple[str, ...]) -> None:
    (room.folder / "x.sif").write_bytes(b"hsqs" + bytes(100))
    done = room.recipe("smoke", "local", *words).expect(2)
    assert "does not exist" in done.err


def test_a_forgotten_site_is_that_of_the_label(tiny: Built) -> None:
    done = tiny.room.recipe("run", tiny.image, "--", "echo", "hello").expect(0)
    assert done.out == "hello\n"
    assert "site: local, by the label of the image" in done.err


def test_digits_that_cannot_be_read_fail_by_name(digits: Built, room: Room) -> None:
    data = room.folder / "data"
    data.mkdir()
    (data / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03")
    done = room.recipe("smoke", "local", digits.image, "--data", data, "--workload", "mnist").expect(6)
    assert "train-images" in done.out + done.err


def test_a_folder_of_wrappers_is_entered_by_its_wrappers(digits: Built, room: Room) -> None:
    """Tykky's product: a folder with bin/; here its wrapper enters the image of the example."""
    wrapper = room.write("wrapped/bin/python3", f'#!/bin/sh\nexec apptainer -s exec "{digits.image}" python3 "$@"\n')
    wrapper.chmod(0o755)
    assert run([wrapper, "-c", "print(1)"]).expect(0).out == "1\n"
    folder: Path = room.folder / "wrapped"
    done = room.recipe("smoke", "local", folder, "--workload", "ddp").expect(0)
    assert done.out.endswith("verdict: pass\n")
