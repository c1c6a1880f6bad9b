"""A hostile recipe built and run with real engines: nothing in it is obeyed, and every value arrives to the byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from recipe_program import Room, run
from stand_ins.images import docker, small_debian
from support import hostile

from builder.compile.compile import compile_plan
from builder.execute.plan_folder import write_plan
from builder.model.recipe import Recipe
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve

pytestmark = pytest.mark.engines

STAND_IN_BASE = "recipe-test/stand-in-base:1"  # the test's own Debian where a site would have its base image
# Printed by Python inside the image, so that no shell stands between its environment and us.
ENVIRONMENT = "import json, os, sys; json.dump(dict(os.environ), sys.stdout)"
FILES = (
    "import json, os, sys; json.dump({n: open('/opt/data/' + n).read() for n in os.listdir('/opt/data')}, sys.stdout)"
)
SEARCH = "import os; print([d for d, _, names in os.walk('/') if 'CANARY' in names and not d.startswith('/proc')])"


@dataclass(frozen=True, kw_only=True)
class Built:
    """A plan folder in which the image was built."""

    recipe: Recipe
    folder: Path
    image: Path
    room: Room


def built(room: Room, *, site: str, backend: str, base: str) -> Built:
    """Compile the hostile recipe for a site on a base of ours, and run the scripts of the plan up to the image."""
    path = hostile.write(room.folder / "recipe", hostile.document())
    recipe = load_recipe(path, shown="hostile.yml")
    plan = compile_plan(
        resolve(recipe, load_site(site), context=Context(backend=backend, base=base, tool="recipe 0.0.0"))
    )
    folder = room.folder / "plan"
    write_plan(plan, folder, recipe_folder=path.parent)
    environment = room.environment(RECIPE_TMPDIR=str(room.tmp))
    for step in plan.steps[:-1]:
        run(["bash", folder / step.script], env=environment, cwd=room.folder).expect(0)
    return Built(recipe=recipe, folder=folder, image=folder / plan.image, room=room)


@pytest.fixture(scope="module")
def stand_in_base(docker_daemon: str, base_tar: Path) -> Iterator[str]:
    """The test's base image in Docker; removed again with what was built on it."""
    del docker_daemon
    docker("tag", small_debian(base_tar), STAND_IN_BASE)
    yield f"docker://{STAND_IN_BASE}"
    ours = run(["docker", "images", "--quiet", "recipe/hostile-recipe-1-*"]).out.split()
    run(["docker", "rmi", "--force", *dict.fromkeys(ours), STAND_IN_BASE])


# Frontier's and MareNostrum's scripts differ from these in their names only (tests/golden): a minute each is saved.
@pytest.fixture(scope="module", params=["local apptainer", "dawn apptainer", "local docker"])
def image(request: pytest.FixtureRequest, rooms: Callable[[str], Room], small_sif: Path) -> Iterator[Built]:
    """The hostile image of a site."""
    site, backend = request.param.split()
    base = str(small_sif) if backend == "apptainer" else request.getfixturevalue("stand_in_base")
    room = rooms(f"hostile-{site}-{backend}")
    found = built(room, site=site, backend=backend, base=base)
    yield found
    found.image.unlink(missing_ok=True)


def in_image(image: Built, *words: str | Path, stdin: str = "") -> str:
    """What a command of the runtime prints; the user's home and this folder stay outside."""
    command, *rest = words
    options = ["--contain", "--cleanenv"]
    return (
        run(
            ["apptainer", command, *options, image.image, *rest],
            env=image.room.environment(),
            cwd=image.room.folder,
            stdin=stdin,
        )
        .expect(0)
        .out
    )


def test_nothing_was_obeyed(image: Built) -> None:
    assert hostile.canaries(image.room.folder) == []
    assert not Path("/tmp/CANARY").exists()
    assert not (Path.home() / "CANARY").exists()
    assert in_image(image, "exec", "python3", "-c", SEARCH) == "[]\n"


@pytest.mark.parametrize("way", ["exec", "run", "shell"])
def test_values_arrive_to_the_byte(image: Built, way: str) -> None:
    """As a shell hands them on: the engine's own scripts have been sourced, in whichever way the image is entered."""
    program = ["python3", "-c", ENVIRONMENT]
    if way == "shell":
        text = in_image(image, "shell", stdin=f'exec python3 -c "{ENVIRONMENT}"\n')
    else:
        text = in_image(image, way, *program)
    found = json.loads(text[text.index("{") :])
    wanted = {**hostile.values(), **image.recipe.variables}
    assert {name: found.get(name) for name in wanted} == wanted
    assert hostile.canaries(image.room.folder) == []


def test_files_arrive_under_their_names(image: Built) -> None:
    found = json.loads(in_image(image, "exec", "python3", "-c", FILES))
    assert found == {name: name for name in hostile.FILE_NAMES}
    assert in_image(image, "exec", "cat", "/opt/deep/plain@1,2=3+4.txt") == "plain"
    assert in_image(image, "exec", "cat", "/opt/ran") == "{{ x }} {% raw %} %post $(touch CANARY) <<EOF\nit's\n"


def test_labels_arrive(image: Built) -> None:
    found = json.loads(run(["apptainer", "inspect", "--json", "--labels", image.image]).expect(0).out)
    labels = found["data"]["attributes"]["labels"]
    # Apptainer's format of a labels file has no white space at the ends of a value.
    wanted = {name: value.strip() for name, value in image.recipe.container.labels.items()}
    assert {name: (labels.get(name) or "").strip() for name in wanted} == wanted
    assert labels["recipe.name"] == image.recipe.name


def test_the_scripts_of_the_folder_run_it(image: Built) -> None:
    """The smoke test asks for two imports; the run script hands a program its words as they are."""
    environment = image.room.environment()
    smoke = next(image.folder.glob("[23]-smoke.sh"))
    run(["bash", smoke], env=environment, cwd=image.room.folder).expect(0)
    imports = json.loads((image.folder / "smoke-imports.json").read_text())["imports"]
    assert [(entry["name"], entry["error"]) for entry in imports] == [("json", None), ("os.path", None)]
    script = image.folder / "run" / "one.sh"
    if script.exists():
        words = ["$(touch CANARY)", "`touch CANARY`", "a b", "", "*", "'\""]
        done = run(["bash", script, "python3", "-c", "import sys; print(sys.argv[1:])", *words], env=environment)
        assert done.expect(0).out.splitlines()[-1] == str(words)
    assert hostile.canaries(image.room.folder) == []


def test_apptainer_would_obey_what_the_docker_backend_hides(rooms: Callable[[str], Room], stand_in_base: str) -> None:
    """Why values with shell characters are no ENV lines: the engine runs them. Fails when an engine stops doing so."""
    room = rooms("obedient")
    room.write("Dockerfile", f'FROM {stand_in_base.removeprefix("docker://")}\nENV A="\\$(touch /tmp/CANARY-seen)"\n')
    tag = "recipe/hostile-recipe-1-obedient:1"
    run(["docker", "build", "--tag", tag, room.folder], env=room.environment(DOCKER_BUILDKIT="1")).expect(0)
    run(["docker", "save", tag, "--output", room.folder / "x.tar"]).expect(0)
    quickly = ["--mksquashfs-args", "-comp zstd -Xcompression-level 3"]
    words = ["apptainer", "build", *quickly, room.folder / "x.sif", f"docker-archive://{room.folder / 'x.tar'}"]
    run(words, env=room.environment()).expect(0)
    command = "ls /tmp; printenv A"
    done = run(["apptainer", "exec", "--contain", "--cleanenv", room.folder / "x.sif", "sh", "-c", command])
    assert "CANARY-seen" in done.out.splitlines()[0]
