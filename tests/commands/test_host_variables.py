"""Variables of a recipe on the host: every generated script is run, and what its programs find is as without them.

The engines are stand-ins that note their whole environment; real ones: tests/engines/test_launch_variables.py.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import test_script_injection as harness
import yaml
from support import hostile, names
from support.matrix import target_plan

from builder.model.plan import Plan
from builder.model.recipe import Recipe
from builder.parse.recipe import load_recipe

# The runtime gives what has its prefix to the image; this one gives it to the stand-in of the program inside.
WITNESS = r"""#!/usr/bin/env bash
{ printf '%s\0' "${0##*/}" "$#" "$@"; /usr/bin/env -0; } >"$(/usr/bin/mktemp "$STAND_IN_LOG.seen-XXXXXXXX")"
. FOLDER/engine-stand-in-plain
"""
# Made anew by each run, or where the run itself lies.
OWN = (
    "PWD", "OLDPWD", "_", "SHLVL", "STAND_IN_LOG", "HOME", "RECIPE_TMPDIR", "TMPDIR", "APPTAINER_TMPDIR",
    "SINGULARITY_TMPDIR", "CW_BUILD_TMPDIR", "MASTER_PORT", "PET_RDZV_ID", "PET_RDZV_ENDPOINT", "RECIPE_STOP",
    "APPTAINERENV_SOURCE_DATE_EPOCH", "RECIPE_RESULTS", "RECIPE_EVENTS", "SINGULARITY_BIND", "PATH",
)  # fmt: skip
INSIDE = ("APPTAINERENV_", "SINGULARITYENV_")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "engine-stand-in-plain").write_text(harness.STAND_IN)
    (folder / "engine-stand-in").write_text(WITNESS.replace("FOLDER", str(folder)))
    (folder / "engine-stand-in").chmod(0o755)
    for name in harness.ENGINES:
        (folder / name).symlink_to("engine-stand-in")
    return folder


def recipe_of(folder: Path, variables: dict[str, str]) -> Recipe:
    """A recipe with variables that the loader has not seen: the compiler trusts no loader."""
    folder.mkdir()
    path = folder / "named.yml"
    content = {"name": "named", "dependencies": ["python=3.12"], "container": {"smoke": {"imports": ["json"]}}}
    path.write_text(yaml.safe_dump(content))
    recipe = load_recipe(path, shown="named.yml")
    return replace(recipe, container=replace(recipe.container, env=variables))


@dataclass(frozen=True, kw_only=True)
class Call:
    """A program that was started: its words and what it found."""

    program: str
    words: tuple[str, ...]
    environment: dict[str, str]

    @property
    def on_the_host(self) -> tuple[str, list[tuple[str, str]]]:
        """What it found outside the image, but for what each run makes anew."""
        kept = {
            name: value
            for name, value in self.environment.items()
            if name not in OWN and not name.startswith(INSIDE) and not name.endswith("_NO_EVAL")
        }
        return self.program, sorted(kept.items())

    def inside(self, prefix: str) -> dict[str, str]:
        """What the runtime gives to the image."""
        return {name.removeprefix(prefix): value for name, value in self.environment.items() if name.startswith(prefix)}


def calls(plan: Plan, folder: Path, *, programs: Path) -> list[Call]:
    """Every program that the scripts of a plan start."""
    folder.mkdir()
    harness.play(plan, folder / "plan", source=folder, programs=programs)
    found = []
    for path in folder.glob("calls.seen-*"):
        program, count, *rest = path.read_text().split("\0")[:-1]
        items = dict(item.split("=", 1) for item in rest[int(count) :])
        found.append(Call(program=program, words=tuple(rest[: int(count)]), environment=items))
    return found


def trap(folder: Path, name: str) -> str:
    """A value that leaves a canary where it is sourced, run, evaluated in words, in arithmetic or as a prompt."""
    program = folder / "evil"
    if not program.exists():
        program.write_text(f"#!/bin/sh\ntouch {folder}/CANARY\n")
        program.chmod(0o755)
    if name in ("BASH_ENV", "ENV", "runtime", "python", "PAGER", "EDITOR", "LD_PRELOAD", "LD_AUDIT", "GIT_SSH_COMMAND"):
        return str(program)
    if name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "GCONV_PATH", "CDPATH"):
        return str(folder)
    return f"UID[$(touch {folder}/CANARY)]"


@pytest.mark.parametrize(("site", "backend"), harness.TARGETS, ids=lambda value: value)
def test_security_06_nothing_on_the_host_differs(site: str, backend: str, tmp_path: Path, programs: Path) -> None:
    every = [*names.REFUSED, *names.ALLOWED]
    assert len(every) >= 62
    evil = tmp_path / "evil-programs"
    evil.mkdir()
    variables = {name: trap(evil, name) for name in every}
    for name in (*harness.ENGINES, "bash", "env", "od", "date", "mkdir"):  # what a PATH of the recipe would find
        shutil.copy(evil / "evil", evil / name)
    found = {}
    for label, given in (("plain", {}), ("named", variables)):
        plan = target_plan(recipe_of(tmp_path / f"recipe-{label}", given), site=site, backend=backend)
        found[label] = calls(plan, tmp_path / label, programs=programs)
    assert hostile.canaries(tmp_path) == []
    # The same programs are started, and find the host's variables as they are without the recipe's.
    plain, named = (sorted(call.on_the_host for call in found[label]) for label in ("plain", "named"))
    assert named == plain
    entered = [call for call in found["named"] if call.words[:1] == ("exec",) or call.program == "python3"]
    assert entered
    late = {"PATH"} if backend == "tykky" else set()  # set by the Python inside
    for call in entered if backend in ("cotainr", "tykky") else ():
        for prefix in INSIDE:
            wanted = {name: value for name, value in variables.items() if name not in late}
            assert call.inside(prefix) == {**call.inside(prefix), **wanted}
        assert backend == "cotainr" or (call.words[:2], call.words[3]) == (("-IS", "-c"), variables["PATH"])


@pytest.mark.parametrize("backend", ["cotainr", "tykky"])
def test_security_06_nothing_is_left_of_a_call(backend: str, tmp_path: Path, programs: Path) -> None:
    """What is set for one call is not there any more for what a script starts after it."""
    variables = {name: f"x{number}" for number, name in enumerate(names.ALLOWED)}
    plan = target_plan(recipe_of(tmp_path / "recipe", variables), site="lumi-g", backend=backend)
    text = next(file.text for file in plan.files if file.path == "run/container.sh")
    (tmp_path / "container.sh").write_text(text)
    (tmp_path / "image" / "bin").mkdir(parents=True)
    (tmp_path / "image" / "bin" / "python3").write_text('#!/bin/sh\nenv >"$STAND_IN_LOG.inside"\n')
    (tmp_path / "image" / "bin" / "python3").chmod(0o755)
    script = ". ./container.sh; env | grep -v ^_= >before; in_image python3 || exit; env | grep -v ^_= | diff before -"
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin", "STAND_IN_LOG": str(tmp_path / "log"), "HOME": str(tmp_path),
        "RECIPE_IMAGE": str(tmp_path / "image"),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-uc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    seen = "".join(path.read_text(errors="replace") for path in tmp_path.glob("log.*"))
    assert "APPTAINERENV_" in seen
