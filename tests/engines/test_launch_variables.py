"""Variables of a recipe in the scripts that run an image which holds none: entered by the real Apptainer, as data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from recipe_program import Room, run
from support import hostile, names

from builder.compile.compile import compile_plan
from builder.execute.plan_folder import write_plan
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve

pytestmark = pytest.mark.engines

SITE = "extends: lumi-g\nruntime: {optional_binds: []}\n"
ENVIRONMENT = ["python3", "-c", "import json, os, sys; json.dump(dict(os.environ), sys.stdout)"]
# What the wrappers of tykky 0.4.2 do with what they are given (generate_wrappers.sh), around the same container.
WRAPPER = """#!/bin/bash
OLD_PATH=$PATH
DIR="$( cd -P "$( dirname "${BASH_SOURCE[0]}" )" >/dev/null 2>&1 && pwd )"
export SINGULARITYENV_PATH="$OLD_PATH"
export SINGULARITYENV_LD_LIBRARY_PATH="$SINGULARITYENV_LD_LIBRARY_PATH:$LD_LIBRARY_PATH"
exec singularity --silent exec "$DIR/../container.sif" bash -c "exec -a $0 /usr/bin/python3 $( \\
    test $# -eq 0 || printf " %q" "$@" )"
"""
USUAL = {
    "PLAIN": "word",
    "PATH": "/usr/local/bin:/usr/bin:/bin:/opt/own/bin",
    "LD_LIBRARY_PATH": "/opt/own/lib",
    "PYTHONPATH": "/opt/own/python",
    "PYTHONWARNINGS": "ignore",
    "COMMAS": "a,b,,c",
    "QUOTES": 'it\'s "so" \\ \\n',
    "SHELL_TEXT": "$(touch CANARY) `touch CANARY` ${HOME} $((1+1)) ; touch CANARY",
    "LC_ALL": "C.UTF-8",
    "WIDE": "é 日本 ∀",
    "runtime": "/opt/evil",
    "options": "--evil",
    "image": "other.sif",
}


def kit(room: Room, backend: str, image: Path, variables: dict[str, str]) -> Path:
    """The plan folder of a recipe with these variables, for an image that is there."""
    room.site("lumi-test", SITE)
    path = room.folder / "named.yml"
    content = {"name": "named", "dependencies": ["python=3.12"], "container": {"env": variables}}
    path.write_text(yaml.safe_dump(content, allow_unicode=True))
    site = load_site("lumi-test", folder=room.sites)
    context = Context(backend=backend, tool="recipe of the tests")
    plan = compile_plan(resolve(load_recipe(path, shown="named.yml"), site, context=context))
    folder = room.folder / "plan"
    write_plan(plan, folder, recipe_folder=room.folder)
    if backend == "tykky":
        (room.folder / "wrapped" / "bin").mkdir(parents=True)
        (room.folder / "wrapped" / "container.sif").symlink_to(image)
        (room.folder / "wrapped" / "bin" / "python3").write_text(WRAPPER)
        (room.folder / "wrapped" / "bin" / "python3").chmod(0o755)
    return folder


@pytest.mark.parametrize("backend", ["cotainr", "tykky"])
@pytest.mark.parametrize("way", ["in_image", "exec_image", "inside", "rank"])
def test_security_06_values_arrive_inside_and_nowhere_else(
    rooms: Callable[[str], Room], base_sif: Path, backend: str, way: str
) -> None:
    room = rooms(f"variables-{backend}-{way}")
    variables = {
        **hostile.values(),
        **USUAL,
        **{name: "x[$(touch CANARY)]" for name in names.ALLOWED if name not in USUAL},
    }
    # With these no Python starts; the smoke test below would not either.
    for name in ("PYTHONHOME", "PYTHONINSPECT", "PYTHONSTARTUP"):
        del variables[name]
    folder = kit(room, backend, base_sif, variables)
    image = base_sif if backend == "cotainr" else room.folder / "wrapped"
    environment = room.environment(RECIPE_IMAGE=str(image), SLURM_PROCID="0", SLURM_NTASKS="1", SLURM_LOCALID="0")
    environment |= {"SLURM_JOB_ID": "17"}
    if way == "rank":
        script = 'bash run/rank.sh "$@"'
    else:
        (inside,) = [line for line in (folder / "2-verify.sh").read_text().splitlines() if line.startswith("inside()")]
        script = f'. ./engine.sh; . run/container.sh; {inside}\n{way} "$@"'
    # The same shell before and after: what a call of the image leaves on the host.
    whole = f"/usr/bin/env >before; ({script}); /usr/bin/env >after" if way != "rank" else script
    done = run(["bash", "-euc", whole, "bash", *ENVIRONMENT], cwd=folder, env=environment).expect(0)
    found = json.loads(done.out)
    suffix = {"LD_LIBRARY_PATH": ":/.singularity.d/libs"}  # the runtime's own, for the libraries of GPUs
    assert {name: found.get(name) for name in variables} == {
        name: value + suffix.get(name, "") for name, value in variables.items()
    }
    assert hostile.canaries(room.folder) == []
    assert "CANARY" not in done.err
    if way != "rank":
        assert (folder / "before").read_text() == (folder / "after").read_text()


def test_what_the_user_sets_inside_wins(rooms: Callable[[str], Room], base_sif: Path) -> None:
    room = rooms("variables-user")
    folder = kit(room, "cotainr", base_sif, {"COLOUR": "deep blue", "SIZE": "1"})
    environment = room.environment(RECIPE_IMAGE=str(base_sif), SINGULARITYENV_COLOUR="red")
    script = '. ./engine.sh; . run/container.sh; in_image "$@"'
    found = json.loads(run(["bash", "-euc", script, "bash", *ENVIRONMENT], cwd=folder, env=environment).expect(0).out)
    assert (found["COLOUR"], found["SIZE"]) == ("red", "1")
