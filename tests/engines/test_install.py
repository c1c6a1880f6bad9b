"""`recipe` as pip, uv and pipx install it, from its wheel; py-rattler comes when a conda environment needs it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import compiled_channel
import pytest
from compiled_channel import MINOR
from recipe_program import Room, inside, program, run

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[2]
RECIPE = "name: demo\nchannels: [{channel}]\ndependencies: [python={minor}, greetpy]\n"
LARGEST = 60 << 20  # bytes of what is installed with recipe, but for uv


@pytest.fixture(scope="module")
def wheel(rooms: Callable[[str], Room]) -> Path:
    folder = rooms("install-wheel").folder
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    run(words, cwd=ROOT, env=dict(os.environ)).expect(0)
    return next(folder.glob("*.whl"))


class Installed(Room):
    """A room with a recipe of its own, whose home and caches are empty."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.home, self.path = folder / "home", folder / "bin"
        self.home.mkdir(exist_ok=True)

    def environment(self, **more: str) -> dict[str, str]:
        """Where the tests' own uv and Python modules are not seen."""
        own = {name: value for name, value in super().environment().items() if not name.startswith("PYTHON")}
        places = {"UV_TOOL_DIR": "tools", "UV_TOOL_BIN_DIR": "bin", "PIPX_HOME": "pipx", "PIPX_BIN_DIR": "bin"}
        own |= {name: str(self.folder / place) for name, place in places.items()}
        return own | {"RECIPE_CACHE_DIR": str(self.folder / "cache")} | more

    def type(self, line: str, **more: str) -> tuple[int, str]:
        done = run(["bash", "-c", line], cwd=self.folder, env=self.environment(**more))
        return done.code, done.out + done.err

    def conda(self, channel: Path) -> Path:
        return self.write("demo.yml", RECIPE.format(channel=channel.as_uri(), minor=MINOR))


INSTALLERS = {
    "pip": "{python} -m venv own && own/bin/pip install --quiet {wheel} && ln -s own/bin bin",
    "uv": "{uv} tool install --quiet --python {python} {wheel}",
    "pipx": "{python} -m venv own && own/bin/pip install --quiet pipx && own/bin/pipx install {wheel}",
}


def install(folder: Path, name: str, wheel: Path) -> Installed:
    room, python = Installed(folder), os.path.realpath(sys.executable)
    words = {"python": python, "uv": program().with_name("uv"), "wheel": wheel}
    code, text = room.type(INSTALLERS[name].format(**{key: shlex.quote(str(word)) for key, word in words.items()}))
    assert code == 0, text
    return room


@pytest.mark.parametrize("name", INSTALLERS)
def test_every_installer_gives_a_program_that_works(name: str, wheel: Path, tmp_path: Path, small_sif: Path) -> None:
    room = install(tmp_path, name, wheel)
    assert room.type("bin/recipe --version") == (0, "recipe 0.1.0\n")
    room.write("requirements.txt", "click==8.1.8\n")
    assert room.type("bin/recipe check lumi-g requirements.txt")[0] == 0
    code, text = room.type(f"bin/recipe lock local requirements.txt --base {small_sif}")  # by the uv that came with it
    assert code == 0, text
    assert "click-8.1.8" in next(room.folder.glob("*.lock/local/pylock.toml")).read_text()
    packages = Path(os.path.realpath(room.path / "recipe")).parents[1] / "lib"
    sizes = {path: path.stat().st_size for path in packages.rglob("*") if path.is_file()}
    assert not [path for path in sizes if "rattler" in path.parts]
    assert sum(size for path, size in sizes.items() if not {"pip", "setuptools"} & set(path.parts)) < LARGEST


@pytest.fixture(scope="module")
def channel(rooms: Callable[[str], Room]) -> Path:
    return compiled_channel.write(rooms("install-channel").folder / "tiny")


def test_py_rattler_is_fetched_when_it_is_needed(wheel: Path, channel: Path, tmp_path: Path, small_sif: Path) -> None:
    """For a lock and for a build; the second time without a request."""
    room = install(tmp_path, "uv", wheel)
    room.conda(channel)
    code, text = room.type(f"bin/recipe lock local demo.yml --base {small_sif}")
    assert code == 0, text
    code, text = room.type(f"bin/recipe lock local demo.yml --base {small_sif} --offline")
    assert code == 0, text
    build = f"bin/recipe build local demo.yml --base {small_sif} -o x.sif --no-smoke --locked"
    code, text = room.type(build, RECIPE_OFFLINE="yes")
    assert code == 0, text
    assert inside(room.folder / "x.sif", "greet-py") == "/opt/env in /opt/env\n"
    shutil.rmtree(room.folder / "cache")
    (room.folder / "x.sif").unlink()
    code, text = room.type(build)
    assert code == 0, text
    assert "conda packages need py-rattler: uv fetches it once" in room.log(room.folder / "x.plan")


def test_without_a_network_the_fix_installs_it(wheel: Path, channel: Path, tmp_path: Path, small_sif: Path) -> None:
    room = install(tmp_path, "uv", wheel)
    room.conda(channel)
    line = f"bin/recipe lock local demo.yml --base {small_sif} --offline"
    code, text = room.type(line)
    words = " ".join(text.split())
    said = "error[lock-solver]: conda packages need py-rattler, which was not fetched before, and no server is asked"
    assert (code, words.count(said)) == (4, 1), text
    assert "Traceback" not in text
    get, put = re.findall(r"`([^`]+)`", words.partition("fix: ")[2])
    assert room.type(get.replace("python3", sys.executable, 1))[0] == 0  # where there is a network
    code, text = room.type(put, UV_OFFLINE="1")
    assert code == 0, text
    code, text = room.type(line)
    assert code == 0, text


def test_a_folder_of_wheels_is_enough_without_a_network(channel: Path, tmp_path: Path, small_sif: Path) -> None:
    """The lines of docs/install.md, the second one in a namespace that has no network at all."""
    room = Installed(tmp_path)
    room.conda(channel)
    page = (ROOT / "docs" / "install.md").read_text().partition("## A site without the internet")[2]
    get, put = re.findall(r"^    (.+)$", page, flags=re.MULTILINE)
    wheels = room.folder / "wheels"
    get = get.replace("python3", sys.executable, 1).replace("-w wheels", f"-w {shlex.quote(str(wheels))}")
    # Other tests work in the checkout while this one copies it: the source distribution is a copy without their files.
    words = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", room.folder / "sdist"]
    run(words, cwd=ROOT, env=dict(os.environ)).expect(0)
    (room.folder / "copy").mkdir()
    archive = next((room.folder / "sdist").iterdir())
    run(["tar", "xf", archive, "--strip-components=1", "--directory", room.folder / "copy"]).expect(0)
    code, text = room.type(f"cd copy && {get}")
    assert code == 0, text
    lines = f"{put} && ~/recipe/bin/recipe lock local demo.yml --base {small_sif}"
    alone = f"unshare --user --map-current-user --net bash -ec {shlex.quote(lines)}"
    code, text = room.type(alone, HOME=str(room.home))
    assert code == 0, text
    assert "greetpy" in next(room.folder.glob("*.lock/local/pixi.lock")).read_text()
