"""Locks of other tools: uv's own becomes an image, only its torch is chosen again, and uv installs from ours."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lock_room import LockRoom, served
from recipe_program import inside
from tiny_channel import Tiny, write_channel
from tiny_index import DEFAULT, torch_index, write_index, write_wheel

from builder.lock.uv_export import export_lock
from builder.model.finding import ConfigError
from builder.model.recipe import InputChoice
from builder.parse.lock_files import name_site_folder
from builder.parse.recipe import name_index

pytestmark = pytest.mark.engines

UV = str(Path(sys.executable).with_name("uv"))
PROJECT = """
    [project]
    name = "app"
    version = "1"
    requires-python = ">=3.10"
    dependencies = ["filelock", "torch==2.8.0"]
    [project.optional-dependencies]
    more = ["psutil"]
    [dependency-groups]
    test = ["ninja"]
"""
MINOR = ".".join(map(str, sys.version_info[:2]))  # uv installs for the Python that it runs with
SITE = f"""
    extends: local
    title: the Python of this machine
    base_images:
      - reference: docker://docker.io/library/python:{MINOR}-slim-bookworm
        source: [own]
        python: "{MINOR}"
        glibc: "2.36"
"""
PACKAGES = (("tool-stub", "1.0", ("other-stub",)), ("other-stub", "2.0", ()))


@pytest.fixture
def room(tmp_path: Path) -> LockRoom:
    return LockRoom(tmp_path)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server with the default index, and PyTorch's for CPUs, whose wheels are other files."""
    write_index(tmp_path / "served" / "simple", DEFAULT)
    write_index(tmp_path / "served" / "cpu", torch_index("cpu"))
    with served(tmp_path / "served") as url:
        yield url


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_pylock(folder: Path, wheels: Path, packages: tuple[tuple[str, str, tuple[str, ...]], ...]) -> Path:
    """A pylock of another tool, for the wheels of an index."""
    text = 'lock-version = "1.0"\ncreated-by = "other"\n'
    for name, version, _ in packages:
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        text += (
            f'[[packages]]\nname = "{name}"\nversion = "{version}"\nwheels = [{{ url = "https://index.example/{file}"'
        )
        text += f', hashes = {{ sha256 = "{digest(wheels / name / file)}" }} }}]\n'
    path = folder / "pylock.toml"
    path.write_text(text + '[tool.recipe]\nsmoke = { imports = ["tool_stub"] }\n')
    return path


def test_an_image_has_the_files_of_a_pylock_or_is_not_made(room: LockRoom, base_sif: Path) -> None:
    index = room.folder / "index"
    settings = {"UV_DEFAULT_INDEX": write_index(index, (*PACKAGES, ("third-stub", "1.0", ())))}
    file = write_pylock(room.folder, index, PACKAGES)
    words = ("local", file, "--base", base_sif)
    newer = write_wheel(index / "tool-stub", "tool-stub", "1.1", ("third-stub",), origin="newer")
    page = newer.with_name("index.html")
    page.write_text(page.read_text().replace("</body>", f'<a href="{newer.name}">{newer.name}</a></body>'))
    room.recipe("build", *words, "-o", "x.sif", **settings).expect(0)
    code = "import importlib.metadata as m, tool_stub; print(tool_stub.__version__, m.version('other-stub'))"
    assert inside(room.folder / "x.sif", "python3", "-c", code).split() == ["1.0", "2.0"]

    page = index / "other-stub" / "index.html"
    before = digest(page.with_name("other_stub-2.0-py3-none-any.whl"))
    after = digest(write_wheel(page.parent, "other-stub", "2.0", (), origin="another's"))
    fresh = settings | {"RECIPE_CACHE_DIR": str(room.folder / "fresh"), "UV_CACHE_DIR": str(room.folder / "fresh-uv")}
    room.recipe("build", *words, "-o", "y.sif", **fresh).expect(5)
    assert not (room.folder / "y.sif").exists()
    page.write_text(page.read_text().replace(before, after))
    refused = room.recipe("lock", *words, **fresh).expect(3)
    assert f"sha256:{before} given, sha256:{after} found" in "".join(refused.err.split("\n  "))


def test_only_the_torch_of_a_uv_lock_is_chosen_again(room: LockRoom, address: str) -> None:
    file = room.write("pyproject.toml", PROJECT).with_name("uv.lock")
    settings = {"UV_DEFAULT_INDEX": f"{address}/simple"}
    environment = room.environment(**settings) | {"UV_PYTHON": sys.executable}
    subprocess.run([UV, "lock", "--quiet"], cwd=room.folder, env=environment, check=True, timeout=300)
    site = room.site("own", SITE)
    words = (site, file, "--torch-index", f"{address}/cpu", "--extra", "more")
    checked = room.recipe("check", *words, **settings).expect(0)
    assert "torch 2.8.0 of the lock is replaced by this site's build, torch 2.8.0+cpu" in " ".join(checked.err.split())
    room.recipe("build", *words, "-o", "x.sif", **settings).expect(3)
    room.recipe("lock", *words, **settings).expect(0)
    lock = room.read("own", env=file)
    own, theirs = room.folder / "served" / "cpu", room.folder / "served" / "simple"
    found = {one.name: (one.version, one.sha256) for one in lock.pip}
    torch = digest(own / "torch" / "torch-2.8.0+cpu-py3-none-any.whl")
    names = {"filelock": "3.20.0", "numpy-stub": "1.0", "psutil": "80.0.0"}
    assert found == {"torch": ("2.8.0+cpu", torch)} | {
        name: (version, digest(theirs / name / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"))
        for name, version in names.items()
    }
    room.recipe("check", *words, "--locked", **settings).expect(0)

    # uv itself installs from what we print, and only the files that it names
    text = room.recipe("lock", *words, "--format", "pylock", **settings).expect(0).out
    ours = room.folder / "ours" / "pylock.toml"
    ours.parent.mkdir()
    ours.write_text(text)
    target = room.folder / "target"
    install = [UV, "pip", "install", "--quiet", "--target", str(target), "-r", str(ours), "--python", sys.executable]
    subprocess.run(install, env=environment, check=True, timeout=300)
    assert {path.name for path in target.glob("*.dist-info")} == {
        f"{name.replace('-', '_')}-{version}.dist-info" for name, (version, _) in found.items()
    }
    ours.write_text(text.replace(torch, "0" * 64))
    shutil.rmtree(target)
    done = subprocess.run(
        install, env=environment | {"UV_CACHE_DIR": str(room.folder / "other")}, check=False, timeout=300
    )
    assert done.returncode != 0
    assert not (target / "torch").exists()


def test_a_lock_of_uv_that_uv_cannot_read_is_a_fault(tmp_path: Path) -> None:
    path, choice = tmp_path / "uv.lock", InputChoice()
    path.write_text('version = 1\nrevision = 3\nrequires-python = ">=3.10"\n')

    def refuse(chosen: InputChoice = choice) -> tuple[str, str]:
        with pytest.raises(ConfigError) as caught:
            export_lock(path, choice=chosen, environment=dict(os.environ))
        (finding,) = caught.value.findings
        return finding.message.replace(f"{tmp_path}/", ""), finding.fix

    assert refuse()[0] == "the pyproject.toml of 'uv.lock' is missing next to it: uv reads both"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.10"\n')
    path.write_text(path.read_text() + "[[package]\n")
    assert refuse()[0].startswith("uv cannot read 'uv.lock': Failed to parse")
    path.write_text("version = 99\n")
    message, fix = refuse()
    assert message.startswith("uv cannot read 'uv.lock': ")
    assert "99" in message
    assert fix == "run `uv lock` where its pyproject.toml is, or take back what has changed the lock"
    path.write_text(
        'version = 1\nrevision = 3\nrequires-python = ">=3.10"\n'
        '[[package]]\nname = "app"\nversion = "1"\nsource = { virtual = "." }\n'
    )
    message, fix = refuse(InputChoice(extras=("plots",)))
    assert "Extra `plots` is not defined" in message
    assert fix == "name one that the pyproject.toml has with --extra or --group, or leave it out"


def test_a_lock_of_conda_gives_the_very_files_or_none(room: LockRoom) -> None:
    """Ours as others write it, read and locked again; one package is of a second channel, and the first has it, too."""
    write_channel(room.folder / "served" / "main")
    extra = Tiny(name="purepy", version="1.0", build="own_0", subdir="noarch", depends=("python",))
    write_channel(room.folder / "served" / "second", [extra])
    with served(room.folder / "served") as url:
        env = room.write(
            "demo.yml",
            f"""
            name: demo
            channels: ["{url}/main", "{url}/second"]
            dependencies: [python=3.12, numpy, "{url}/second::purepy"]
            """,
        )
        room.locked("local", env=env).expect(0)
        lock = room.read("local", env=env)
        wanted = {(one.name, one.version, one.build, one.sha256) for one in lock.conda}
        assert ("purepy", "own_0") in {(one.name, one.build) for one in lock.conda}
        pixi = (name_site_folder(name_index(env), "local") / "pixi.lock").read_text()
        for form, name in (("conda-lock", "conda-lock.yml"), ("explicit", "explicit.txt"), ("pixi", "pixi.lock")):
            text = pixi if form == "pixi" else room.recipe("lock", "local", env, "--format", form).expect(0).out
            file = room.folder / name
            file.write_text(text)
            room.recipe("plan", "local", file, "-o", "x.plan").expect(3)
            room.locked("local", env=file).expect(0)
            found = room.read("local", env=file)
            assert {(one.name, one.version, one.build, one.sha256) for one in found.conda} == wanted
            room.recipe("plan", "local", file, "-o", f"{form}.plan").expect(0)
            numpy = next(one for one in lock.conda if one.name == "numpy")
            file.write_text(text.replace(numpy.sha256, "0" * 64).replace(f"md5: {numpy.md5}", f"md5: {'0' * 32}"))
            refused = room.locked("local", env=file).expect(3)
            assert f"'numpy': sha256:{'0' * 64} given, sha256:{numpy.sha256} found" in "".join(
                refused.err.split("\n  ")
            )
