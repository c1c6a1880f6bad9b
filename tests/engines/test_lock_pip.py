"""`recipe lock` of Python packages: uv itself, on indexes of tiny wheels; and install.sh with what was locked."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from lock_room import PASSWORD, USER, LockRoom, served
from tiny_channel import write_channel
from tiny_index import write_index, write_indexes, write_wheel

from builder.compile.compile import compile_plan
from builder.model.lock import Lock
from builder.model.target import Context
from builder.parse.lock_files import name_site_folder, read_lock
from builder.parse.recipe import load_recipe, name_index
from builder.parse.site import load_site
from builder.resolve.resolve import resolve

pytestmark = pytest.mark.engines

BIN = Path(sys.executable).parent
ENV = """
    name: demo
    dependencies:
      - python=3.12
      - pip: [torch==2.8.0, torchvision, accelerate, timm, lightning, numpy]
"""
FRESH = "docker://docker.io/library/python:3.12-slim-bookworm"


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The default index, and PyTorch's by {token}."""
    root = tmp_path_factory.mktemp("indexes")
    found = write_indexes(root, ("rocm6.4", "cpu", "cu126", "cu129", "xpu"))
    return {"UV_DEFAULT_INDEX": found["default"], "RECIPE_TORCH_INDEX": f"{(root / 'whl').as_uri()}/{{token}}"}


@pytest.fixture
def room(tmp_path: Path) -> LockRoom:
    return LockRoom(tmp_path)


def files_of(lock: Lock) -> dict[str, tuple[str, str]]:
    """Version and index (the folder's name) of every file."""
    return {file.name: (file.version, file.url.split("/")[-3]) for file in lock.pip}


def test_only_torch_is_from_the_index_of_torch(room: LockRoom, indexes: Mapping[str, str]) -> None:
    file = room.write("demo.yml", ENV)
    room.recipe("lock", "frontier", file, "--base", FRESH, **indexes).expect(0)
    lock = room.read("frontier", env=file)
    found = files_of(lock)
    assert found["torch"] == ("2.8.0+rocm6.4", "rocm6.4")
    assert found["torchvision"] == ("0.23.0+rocm6.4", "rocm6.4")
    assert found["pytorch-triton-rocm"] == ("3.4.0", "rocm6.4")  # the default index has a stale one
    others = {"accelerate": "1.10.0", "timm": "1.0.19", "lightning": "2.5.0", "numpy": "2.3.0", "filelock": "3.20.0"}
    assert {name: found[name] for name in others} == {name: (version, "default") for name, version in others.items()}
    assert not [name for name in found if name.startswith("nvidia-")]
    assert {file.name for file in lock.pip if file.torch} == {"torch", "torchvision", "pytorch-triton-rocm"}
    for item in lock.pip:
        path = Path(item.url.removeprefix("file://").replace("%2B", "+"))
        assert (item.sha256, item.size) == (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)


def test_several_sites_and_two_runs(room: LockRoom, indexes: Mapping[str, str]) -> None:
    file = room.write("demo.yml", ENV)
    room.recipe("lock", "local", "dawn", file, "--base", FRESH, **indexes).expect(0)
    first = room.written(file)
    torch = {site: files_of(room.read(site, env=file))["torch"] for site in ("local", "dawn")}
    assert torch == {"local": ("2.8.0+cpu", "cpu"), "dawn": ("2.8.0+xpu", "xpu")}
    more = {**indexes, "UV_CACHE_DIR": str(room.folder / "another"), "HOME": "/nonexistent", "PYTHONHASHSEED": "7"}
    room.recipe("lock", "dawn", "local", file, "--base", FRESH, **more).expect(0)
    assert room.written(file) == first
    alone = room.recipe("lock", "dawn", file, "--base", FRESH, **indexes).expect(0)
    assert "nothing has changed" in alone.err
    assert room.written(file) == first


def test_what_the_base_image_brings_stays_out(room: LockRoom, indexes: Mapping[str, str]) -> None:
    """Of a registry's image only what the tables hold is known, and that is said."""
    file = room.write("requirements.txt", "torch==2.8.0\ntorchvision\naccelerate\ntimm\n")
    done = room.recipe("lock", "mn5", file, **indexes).expect(0)
    lock = room.read("mn5", env=file)
    assert lock.asked.place == "base"
    assert set(files_of(lock)) == {"accelerate", "timm", "numpy"}
    assert files_of(lock)["accelerate"] == ("1.10.0", "default")
    assert "only torch is known" in done.err


def test_what_conda_brings_is_resolved_against_and_stays_out(room: LockRoom, indexes: Mapping[str, str]) -> None:
    channel = write_channel(room.folder / "channel")
    head = f"name: demo\nchannels: [{channel.as_uri()}]\ndependencies:\n  - python=3.12\n  - mathlib\n  - numpy=1.26\n"
    file = room.write("demo.yml", f"{head}  - pip: [accelerate, torch==2.8.0]\n")
    room.recipe("lock", "local", file, **indexes).expect(0)
    lock = room.read("local", env=file)
    assert {package.name for package in lock.conda} >= {"numpy", "python", "pip"}
    assert "numpy" not in files_of(lock)
    assert files_of(lock)["torch"] == ("2.8.0+cpu", "cpu")
    conflict = room.write("conflict.yml", f"{head}  - pip: ['numpy>=2']\n")
    done = room.recipe("lock", "local", conflict, **indexes).expect(3)
    assert "the Python packages cannot be installed together" in done.err
    assert "numpy" in done.err


def test_a_file_is_chosen_for_the_processor_and_the_c_library(room: LockRoom, tmp_path: Path) -> None:
    """Of the wheels of one release an Arm site has its own, and no site one that needs a newer glibc than it has."""
    root = tmp_path / "wheels"
    index = write_index(root, (("fast", "1.0", ()),))
    plain = root / "fast" / "fast-1.0-py3-none-any.whl"
    tags = ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "manylinux_2_39_x86_64", "manylinux_2_39_aarch64")
    names = [f"fast-1.0-cp312-cp312-{tag}.whl" for tag in tags]
    for name in names:
        write_wheel(tmp_path, "fast", "1.0", (), origin=name).replace(plain.with_name(name))
    plain.unlink()
    links = "".join(f'<a href="{name}">{name}</a>' for name in names)
    plain.with_name("index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    site = room.site("grace", "extends: local\ntitle: Arm\nnode: {arch: aarch64}\n")
    file = room.write("requirements.txt", "fast\n")
    room.locked("local", site, env=file, UV_DEFAULT_INDEX=index).expect(0)
    chosen = {name: room.read(name, env=file).pip[0] for name in ("local", site)}
    assert chosen["local"].file_name == names[0]  # glibc 2.36
    assert chosen[site].file_name == names[1]
    for item in chosen.values():  # the page gives no hashes: the file was asked
        assert item.sha256 == hashlib.sha256(plain.with_name(item.file_name).read_bytes()).hexdigest()


def test_what_does_not_exist_is_told(room: LockRoom, indexes: Mapping[str, str]) -> None:
    file = room.write("requirements.txt", "filelock==9\n")
    done = room.recipe("lock", "local", file, **indexes).expect(3)
    assert "filelock" in done.err
    assert "Traceback" not in done.err
    down = {**indexes, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    done = room.recipe("lock", "local", file, **down, UV_HTTP_RETRIES="0").expect(5)
    assert "an index of Python packages could not be reached" in done.err


def test_an_image_whose_python_is_not_known_is_told(room: LockRoom, indexes: Mapping[str, str]) -> None:
    file = room.write("requirements.txt", "filelock\n")
    done = room.recipe("lock", "local", file, "--base", "docker://127.0.0.1:9/some/image:1", **indexes).expect(2)
    assert "]: the Python of 'docker://127.0.0.1:9/some/image:1' is not known" in done.err


def test_a_private_index_and_its_password(room: LockRoom, tmp_path: Path) -> None:
    """From a variable or from netrc; nowhere in a lock, a cache of ours or what is said."""
    write_index(tmp_path / "default", (("six-stub", "1.0", ("numpy-stub",)), ("numpy-stub", "1.0", ())))
    file = room.write("requirements.txt", "six-stub\n")
    with served(tmp_path / "default", password=PASSWORD) as address:
        refused = room.locked("local", env=file, UV_DEFAULT_INDEX=address)
        assert refused.code == 5, refused.err
        assert f"the index '{address}" in refused.err
        assert "refused access (401 Unauthorized), and no other index has 'six-stub'" in refused.err
        with_user = address.replace("//", f"//{USER}:{PASSWORD}@")
        by_pip = room.locked("local", env=file, PIP_INDEX_URL=with_user).expect(0)
        first = room.written(file)
        assert all(item.url.startswith(address) for item in room.read("local", env=file).pip)
        netrc = room.write("home/.netrc", f"machine 127.0.0.1 login {USER} password {PASSWORD}\n")
        netrc.chmod(0o600)
        by_netrc = room.locked("local", env=file, UV_DEFAULT_INDEX=address, NETRC=str(netrc)).expect(0)
        assert room.written(file) == first
    said = "".join(done.out + done.err for done in (refused, by_pip, by_netrc))
    assert PASSWORD not in said
    kept = [
        path
        for path in room.folder.rglob("*")
        if path.is_file() and path != netrc and room.folder / "uv" not in path.parents
    ]
    assert not [path for path in kept if PASSWORD.encode() in path.read_bytes()]
    offline = room.recipe("lock", "--offline", "local", file, UV_DEFAULT_INDEX=address).expect(0)
    assert "nothing has changed" in offline.err


# --- installing what was locked --------------------------------------------------------------------------------------


class Installed:
    """A folder in the place of an image: install.sh with the files of a plan; only its fixed paths are replaced."""

    def __init__(self, folder: Path, file: Path, site: str, settings: Mapping[str, str], *, base: str) -> None:
        self.here, self.env = folder / "build", folder / "env"
        self.settings = settings
        self.here.mkdir(parents=True)
        lock = read_lock(name_index(file), site)
        context = Context(torch_index=settings["RECIPE_TORCH_INDEX"], base=base, lock=lock, locked=True)
        plan = compile_plan(resolve(load_recipe(file), load_site(site), context=context))
        for item in plan.files:
            if item.path.startswith("image/"):
                (self.here / item.path.removeprefix("image/")).write_text(item.text)
        script = (self.here / "install.sh").read_text()
        for fixed, own in (("here=/opt/recipe/build\n", self.here), ("prefix=/opt/env\n", self.env)):
            assert fixed in script
            script = script.replace(fixed, f"{fixed.partition('=')[0]}={own}\n")
        (self.here / "install.sh").write_text(script)
        version = next(line for line in script.splitlines() if line.startswith("UV_VERSION=")).partition("=")[2]
        tools = folder / "tools" / f"uv-{version}" / "bin"
        tools.mkdir(parents=True)
        (tools / "uv").symlink_to(BIN / "uv")
        self.tools = folder / "tools"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.env)], check=True)

    def install(self) -> subprocess.CompletedProcess[str]:
        """The two installs, as the image runs them."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.here),
            "RECIPE_TOOLS": str(self.tools),
            **self.settings,
        }
        environment |= {"UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never"}
        for part in ("torch", "packages"):
            command = ["/bin/sh", str(self.here / "install.sh"), part]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                break
        return done

    def state(self) -> dict[str, str]:
        """Every distribution with its version."""
        return {
            name.replace("_", "-"): version
            for path in self.env.glob("lib/python*/site-packages/*.dist-info")
            for name, version in [path.name.removesuffix(".dist-info").split("-", 1)]
        }


def test_exactly_what_was_locked_is_installed(room: LockRoom, tmp_path: Path) -> None:
    """Newer releases that came since change nothing; a swapped wheel ends the build, whichever index it is of."""
    root = tmp_path / "own"
    found = write_indexes(root, ("cpu",))
    settings = {"UV_DEFAULT_INDEX": found["default"], "RECIPE_TORCH_INDEX": f"{(root / 'whl').as_uri()}/{{token}}"}
    file = room.write("demo.yml", ENV)
    room.recipe("lock", "local", file, **settings).expect(0)
    lock = room.read("local", env=file)
    newer = write_wheel(root / "default" / "numpy", "numpy", "2.4.0", (), origin="newer")
    page = root / "default" / "numpy" / "index.html"
    page.write_text(page.read_text().replace("</body>", f'<a href="{newer.name}">{newer.name}</a></body>'))
    image = Installed(tmp_path / "image", file, "local", settings, base="")
    done = image.install()
    assert done.returncode == 0, done.stderr
    assert image.state() == {item.name: item.version for item in lock.pip}
    for name, place in (("timm", root / "default" / "timm"), ("torch", root / "whl" / "cpu" / "torch")):
        item = next(item for item in lock.pip if item.name == name)
        wheel = next(place.glob(f"*-{item.version}-*.whl"))
        kept = wheel.read_bytes()
        write_wheel(place, name, item.version, (), origin="somebody else's")
        page = place / "index.html"
        told = page.read_text()
        page.write_text(told.replace(item.sha256, hashlib.sha256(wheel.read_bytes()).hexdigest()))
        again = Installed(tmp_path / f"swapped-{name}", file, "local", settings, base="")
        done = again.install()
        assert done.returncode != 0
        assert "hash" in done.stderr.lower()
        assert name not in again.state()
        wheel.write_bytes(kept)
        page.write_text(told)
    shutil.rmtree(name_site_folder(name_index(file), "local"))
    assert "does not exist" in room.recipe("plan", "local", file, "--show", **settings).expect(2).err
