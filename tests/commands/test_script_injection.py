"""No value of a recipe becomes a command: every generated script is run, by bash, with stand-ins for the engines.

The same with real engines: tests/engines/test_injection.py; without bash: tests/unit/test_compile_injection.py.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from support import hostile
from support.matrix import target_plan

from builder.execute.plan_folder import write_plan
from builder.model.plan import Plan
from builder.parse.recipe import load_recipe
from builder.parse.site import BUNDLED, load_site

ENGINES = (
    "apptainer",
    "conda-containerize",
    "cotainr",
    "docker",
    "mpiexec",
    "scontrol",
    "singularity",
    "srun",
    "layering-stand-in",
)


TARGETS = [
    (path.stem, backend)
    for path in sorted(BUNDLED.glob("*.yaml"))
    for backend in load_site(path.stem).build.backends
    if backend != "layers" or path.stem == "local"  # elsewhere the recipe makes a conda environment, which is refused
    if load_site(path.stem).node.arch == platform.machine()  # other scripts stop here
]


# A stand-in notes its words and leaves what the real program would leave; a launcher starts one rank.
STAND_IN = r"""#!/usr/bin/env bash
printf '%s\0' "${0##*/}" "$@" $'\1' >>"$STAND_IN_LOG" # in one go: several may write side by side
case "${0##*/} $1" in
    "apptainer --version" | "singularity --version") echo "${0##*/} version 1.4.5" ;;
    "apptainer build" | "singularity build" | "layering-stand-in -E")
        for word; do case "$word" in *.part) [ -d "$word" ] || echo image >"$word" ;; esac; done ;;
    "docker save") for word; do case "$word" in *.part) echo archive >"$word" ;; esac; done ;;
    "cotainr build") echo image >"$2" ;;
    "conda-containerize new")
        while [ "$1" != --prefix ]; do shift; done
        mkdir -p "$2/bin"
        cp "$0" "$2/bin/python3" ;;
    "apptainer exec" | "singularity exec" | python3*)
        while [ $# -gt 0 ] && [ "$1" != conclude ]; do shift; done
        if [ $# -gt 0 ]; then echo '{}' >"$2/verdict.json"; fi ;;
    "scontrol show") echo node1 ;;
    srun* | mpiexec*)
        while [ "$1" != bash ]; do shift; done
        SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1 PMI_RANK=0 PMI_SIZE=1 MPI_LOCALRANKID=0 exec "$@" ;;
esac
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH: the engines' names lead to one stand-in."""
    folder = tmp_path_factory.mktemp("programs")
    stand_in = folder / "engine-stand-in"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    for name in ENGINES:
        (folder / name).symlink_to(stand_in.name)
    return folder


def keys_of(backend: str) -> tuple[str, ...]:
    return {"cotainr": (), "tykky": ("run",)}.get(backend, ("files", "labels", "run"))


def play(plan: Plan, folder: Path, *, source: Path, programs: Path) -> list[list[str]]:
    """Write the plan, run all its scripts, return the words of every call of an engine."""
    write_plan(plan, folder, recipe_folder=source)
    log = folder.parent / "calls"
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(folder.parent),
        "USER": "somebody",
        "LC_ALL": "C.UTF-8",
        "STAND_IN_LOG": str(log),
        "RECIPE_TMPDIR": str(folder.parent / "tmp"),
        "RECIPE_ACCEPT_LICENSES": "yes",
        "RECIPE_PYTHON": str(programs / "layering-stand-in"),  # runs the program that makes layers
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "node1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_CPUS_PER_TASK": "2",
        # The module command is a shell function; this one is the stand-in for it.
        "BASH_FUNC_module%%": "() {  :\n}",
    }
    log.touch()
    tops = [file.path for file in plan.files if "/" not in file.path and file.path.endswith((".sh", ".sbatch"))]
    jobs = [
        file.path for file in plan.files if file.path in (f"run/{name}.sbatch" for name in ("gpu", "node", "nodes"))
    ]
    jobs += [file.path for file in plan.files if file.path in ("run/one.sh", "run/ranks.sh")]
    for name in [*sorted(name for name in tops if name not in ("engine.sh", "post-install.sh")), *jobs]:
        done = subprocess.run(["bash", name], cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (name, done.stdout, done.stderr)
    return [call.split("\0")[:-1] for call in log.read_text(encoding="utf-8").split("\1\0")[:-1]]


@pytest.mark.parametrize(("site", "backend"), TARGETS, ids=lambda value: value)
def test_a_hostile_recipe_is_only_data(site: str, backend: str, tmp_path: Path, programs: Path) -> None:
    path = hostile.write(tmp_path / "recipe", hostile.document(keys=keys_of(backend)))
    recipe = load_recipe(path, shown="hostile.yml")
    plan = target_plan(recipe, site=site, backend=backend)
    calls = play(plan, tmp_path / "plan", source=path.parent, programs=programs)
    assert hostile.canaries(tmp_path) == []
    called = {
        "apptainer": {"apptainer", "singularity"},  # PRoot needs a SingularityCE
        "cotainr": {"cotainr"},
        "docker": {"docker"},
        "tykky": {"conda-containerize"},
        "layers": {"layering-stand-in"},
    }[backend]
    assert called & {call[0] for call in calls}
    if backend == "docker":
        build = next(call for call in calls if call[:2] == ["docker", "build"])
        given = {word for before, word in pairwise(build) if before == "--label"}
        assert {f"{name}={value}" for name, value in recipe.container.labels.items()} <= given
        assert all(word.startswith("-") or before.startswith("-") for before, word in pairwise(build[1:-1]))


@pytest.mark.parametrize(
    ("site", "backend"), [("dawn", "apptainer"), ("lumi-g", "cotainr"), ("mn5", "docker"), ("lumi-g", "tykky")]
)
def test_the_compiler_trusts_no_loader(site: str, backend: str, tmp_path: Path, programs: Path) -> None:
    """Names and values that a loader refuses are data for the compiler all the same."""
    path = hostile.write(tmp_path / "recipe", hostile.document(keys=keys_of(backend)))
    recipe = load_recipe(path, shown="hostile.yml")
    line = replace(recipe.pip[0], text="six==1$(touch CANARY)`touch CANARY`'\"; touch CANARY", name="six")
    container = replace(
        recipe.container,
        env={**recipe.container.env, "LINES": "a\n$(touch CANARY)\ntouch CANARY\n"},
        files={"data": "/opt/a b$(touch CANARY)`touch CANARY`'\"{{ x }}"} if recipe.container.files else {},
        smoke=replace(recipe.container.smoke, imports=("$(touch CANARY)", "`touch CANARY`", "'; touch CANARY")),
    )
    recipe = replace(recipe, name="x $(touch CANARY) `touch CANARY`\ntouch CANARY", pip=(line,), container=container)
    plan = target_plan(recipe, site=site, backend=backend, account="a$(touch CANARY)`touch CANARY`'")
    play(plan, tmp_path / "plan", source=path.parent, programs=programs)
    assert hostile.canaries(tmp_path) == []


def test_a_stand_in_that_obeys_is_seen(tmp_path: Path, programs: Path) -> None:
    """The search for canaries finds one: the tests above can fail."""
    path = hostile.write(tmp_path / "recipe", hostile.document())
    plan = target_plan(load_recipe(path, shown="hostile.yml"), site="local", backend="apptainer")
    bad = [
        replace(file, text=file.text + "\necho $(touch CANARY)\n") if file.path == "1-build-image.sh" else file
        for file in plan.files
    ]
    play(replace(plan, files=tuple(bad)), tmp_path / "plan", source=path.parent, programs=programs)
    assert hostile.canaries(tmp_path) == [str(tmp_path / "plan" / "CANARY")]


def test_data_files_hold_the_values_as_they_are(tmp_path: Path) -> None:
    path = hostile.write(tmp_path, hostile.document())
    recipe = load_recipe(path, shown="hostile.yml")
    texts = {file.path: file.text for file in target_plan(recipe, site="local", backend="docker").files}
    script = texts["image/env.sh"] + "env -0\n"
    done = subprocess.run(["sh", "-euc", script], env={"PATH": os.defpath}, capture_output=True, check=True)
    found = dict(item.split("=", 1) for item in done.stdout.decode().split("\0") if item)
    assert found == {**found, **hostile.values(), **recipe.variables}
    lines = dict(line.split(" ", 1) for line in texts["image/labels.txt"].splitlines())
    assert lines == {**lines, **recipe.container.labels}
    assert json.loads(texts["recipe.json"])["recipe"] == recipe.name
