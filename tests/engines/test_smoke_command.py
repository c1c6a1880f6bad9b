"""`recipe smoke`: the smoke test in an image that exists, also one that this tool did not make."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from recipe_program import TORCH, Built, Room, build, run

pytestmark = pytest.mark.engines


def test_a_result_is_kept_where_it_is_asked_for(digits: Built, room: Room) -> None:
    out = room.folder / "kept"
    done = room.recipe("smoke", "local", digits.image, "--workload", "mnist", "-o", out).expect(0)
    assert done.out.endswith("verdict: pass\n")
    assert ("smoke: done" in done.err, "warning" in done.err) == (True, False)
    result = json.loads((out / "smoke-mnist.json").read_text())
    assert result["accuracy"] >= 0.9
    assert (out / "logs" / "smoke.log").is_file()
    assert not (out / "smoke-ddp.json").exists()
    compared = room.recipe("report", digits.plan, out).expect(0).out
    assert re.search("^ *mnist: total .*×", compared, re.MULTILINE), compared
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
    done = tiny.room.recipe("smoke", "lumi-g", tiny.image, "--here", "--workload", "mnist").expect(6)
    assert done.out.endswith("verdict: FAIL\n")


def test_an_image_without_torch_is_not_tested(tiny: Built) -> None:
    done = tiny.room.recipe("smoke", "local", tiny.image).expect(0)
    assert done.out.startswith("verdict: not tested: the image has no torch")
    done = tiny.room.recipe("run", "local", tiny.image, "--gpus", "2", "--", "true").expect(2)
    assert "has no torch" in done.err


@pytest.mark.parametrize(
    ("name", "what", "near"),
    [
        ("pyhton3", "the program 'pyhton3' is not in the PATH of the image", "did you mean 'python3'? "),
        ("qqqwwwxxx", "the program 'qqqwwwxxx' is not in the PATH of the image", ""),
        ("/no/such", "there is no program '/no/such', neither in the image", ""),
        ("./no-such", "there is no program './no-such', neither in the image", ""),
    ],
)
def test_one_line_names_a_program_missing_in_the_image(tiny: Built, name: str, what: str, near: str) -> None:
    done = tiny.room.recipe("run", "local", tiny.image, "--", name, "-V").expect(127)
    line, fix = done.err.splitlines()
    assert line.startswith(f"error[no-program]: {what}")
    assert fix == f"  fix: {near}`recipe inspect {tiny.image}` lists what is in the image"


def test_a_command_keeps_its_own_exit_code_and_errors(tiny: Built) -> None:
    done = tiny.room.recipe("run", "local", tiny.image, "--", "sh", "-c", "echo own >&2; exit 255").expect(255)
    assert done.err == "own\n"
    program = tiny.room.folder / "bound-program"
    program.write_text("#!/bin/sh\necho own >&2\nexit 127\n")
    program.chmod(0o755)
    path = {"APPTAINERENV_PATH": f"{program.parent}:/usr/bin:/bin"}
    done = tiny.room.recipe("run", "local", tiny.image, "--", program.name, **path).expect(127)
    assert done.err == "own\n"


def test_torch_of_another_vendor_has_one_verdict(digits: Built) -> None:
    """The CPU's torch at a site with Intel GPUs is not what that site needs: nothing is run."""
    done = digits.room.recipe("smoke", "dawn", digits.image, "--here", "--workload", "mnist").expect(6)
    assert "smoke:" not in done.err
    assert [line for line in done.out.splitlines() if line.startswith("FAIL")] == [
        f"FAIL  image: torch: torch {TORCH}+cpu is not built for intel GPUs (expected a build for intel)"
    ]
    assert done.out.endswith("verdict: FAIL\n")
    assert "failed, before a run" in done.err


def test_what_was_not_tested_has_not_passed(room: Room, base_sif: Path) -> None:
    text = "name: plain\ndependencies: [pip: [six==1.16.0]]\n"
    plain = build(room, room.write("plain.yml", text), base_sif)
    assert f"built, not tested: {plain.image}" in plain.done.err
    assert "train in the image" not in plain.done.err
    words = ("--base", str(base_sif))
    assert "was built from this and was not tested" in plain.build(*words).expect(0).err
    assert "x.sif was built from this" in plain.build(*words, "-n").expect(0).err
    assert ": built, not tested\n" in room.recipe("report", plain.image).expect(0).out
    assert "built, not tested" in plain.build(*words, "--no-smoke", "--force").expect(0).err
    again = plain.build(*words).expect(2)
    assert "and was not tested" in again.err
    assert "give --from smoke to test it" in again.err
    steps = [line.split()[1] for line in plain.build(*words, "--from", "smoke", "-n").expect(0).out.splitlines()
             if line.startswith("  step")]  # fmt: skip
    assert steps == ["2"]
    plain.build(*words, "--from", "smoke").expect(0)
    assert "nothing to do" in plain.build(*words).expect(0).err


def test_a_plan_of_another_recipe_leaves_that_of_an_image(room: Room, base_sif: Path) -> None:
    recipe = "name: x\ndependencies: [pip: [six=={}]]\n"
    one, two = (room.write(f"{name}.yml", recipe.format(name)) for name in ("1.16.0", "1.17.0"))
    words = ("local", one, "--base", base_sif)
    room.recipe("build", *words).expect(0)
    done = room.recipe("plan", "local", two, "--base", base_sif).expect(2)
    assert "x-local.sif' was built from the plan in" in done.err
    (script,) = (room.folder / "x-local.plan").glob("1-*.sh")
    text = script.read_text()
    script.write_text(f"{text}# mine\n")
    assert "folder-edited" in room.recipe("plan", "local", two, "--base", base_sif).expect(2).err
    done = room.recipe("build", "local", two, "--base", base_sif).expect(2)
    assert "output-exists" in done.err
    assert "folder-edited" in done.err
    script.write_text(text)
    room.recipe("plan", *words).expect(0)
    assert "nothing to do" in room.recipe("build", *words).expect(0).err
    room.recipe("plan", "local", two, "--base", base_sif, "--force").expect(0)
    done = room.recipe("build", *words).expect(2)
    assert "its plan folder holds another plan now" in done.err
    room.recipe("plan", *words).expect(0)  # as the message says
    assert "nothing to do" in room.recipe("build", *words).expect(0).err


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
    done = room.recipe("smoke", "local", folder, "--workload", "pi").expect(0)
    assert done.out.endswith("verdict: pass\n")
