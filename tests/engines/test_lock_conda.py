"""`recipe lock` of conda packages: py-rattler itself, on channels made here, as folders and over http."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lock_room import PASSWORD, USER, LockRoom, served
from tiny_channel import PACKAGES, Tiny, write_channel, write_package

from builder.parse.lock_files import name_site_folder
from builder.parse.recipe import name_index

pytestmark = pytest.mark.engines

# The packages of a lock as py-rattler reads them.
RECORDS = """
import sys
from pathlib import Path
from rattler import LockFile

def records_of(path):
    lock = LockFile.from_path(path)
    found = lock.default_environment()
    platforms = lock.platforms()  # a platform made by hand is a panic (py-rattler 0.28)
    return [record for one in platforms for record in found.conda_repodata_records_for_platform(one) or []]
"""
GRACE = """
    extends: local
    title: a site of Arm processors
    node: {arch: aarch64}
"""


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_channel(tmp_path_factory.mktemp("channels") / "tiny")


@pytest.fixture
def room(tmp_path: Path) -> LockRoom:
    return LockRoom(tmp_path)


@pytest.fixture
def env(room: LockRoom, channel: Path) -> Callable[..., Path]:
    def made(*packages: str, at: str = "") -> Path:
        lines = "".join(f"  - {package}\n" for package in ("python=3.12", *packages))
        return room.write("demo.yml", f"name: demo\nchannels: [{at or channel.as_uri()}]\ndependencies:\n{lines}")

    return made


def test_exact_packages_are_those_of_the_site(room: LockRoom, env: Callable[..., Path], channel: Path) -> None:
    """glibc of the base image and CUDA of the driver choose the builds; this machine's play no part."""
    file = env("numpy", "purepy", "mathlib", "gpulib")
    done = room.locked("local", "mn5", "lumi-c", env=file, CONDA_OVERRIDE_CUDA="99", CONDA_OVERRIDE_GLIBC="9.9").expect(
        0
    )
    assert done.out.strip().endswith("demo.lock.yml")
    builds = {}
    for site in ("local", "mn5", "lumi-c"):
        lock = room.read(site, env=file)
        builds[site] = {package.name: package.build for package in lock.conda}
        assert {package.name for package in lock.conda} >= {"python", "tinyc", "numpy", "purepy", "mathlib", "gpulib"}
        assert all(len(package.sha256) == 64 and package.url.startswith(channel.as_uri()) for package in lock.conda)
        assert lock.python == "3.12.4"
    assert (builds["local"]["mathlib"], builds["local"]["gpulib"]) == ("old_0", "cpu_0")  # glibc 2.36
    assert (builds["mn5"]["mathlib"], builds["mn5"]["gpulib"]) == ("old_0", "cuda_1")  # NVIDIA's driver
    assert (builds["lumi-c"]["mathlib"], builds["lumi-c"]["gpulib"]) == ("new_1", "cpu_0")  # glibc 2.39
    assert "__cuda=" not in (name_site_folder(name_index(file), "local") / "pixi.lock").read_text()


def test_an_arm_site_is_solved_here(room: LockRoom, env: Callable[..., Path]) -> None:
    site = room.site("grace", GRACE)
    file = env("numpy", "purepy")
    room.locked(site, env=file).expect(0)
    lock = room.read(site, env=file)
    assert lock.platform == "linux-aarch64"
    found = {package.name: (package.subdir, package.build) for package in lock.conda}
    assert found["numpy"] == ("linux-aarch64", "py312ha_0")
    assert found["purepy"] == ("noarch", "pyh_0")
    assert "__archspec=1=aarch64" in lock.virtual


def test_two_runs_write_the_same_bytes(room: LockRoom, env: Callable[..., Path], tmp_path: Path) -> None:
    file = env("numpy", "purepy", "mathlib")
    room.locked("local", "mn5", env=file).expect(0)
    first = room.written(file)
    assert sorted(first) == ["demo.lock.yml", "demo.lock/local/pixi.lock", "demo.lock/mn5/pixi.lock"]
    done = room.locked("mn5", "local", env=file, RECIPE_CACHE_DIR=str(tmp_path / "other")).expect(0)
    assert room.written(file) == first
    assert done.err.count("nothing has changed") == 2


def test_the_lock_is_pixis_and_installs(room: LockRoom, env: Callable[..., Path], tmp_path: Path) -> None:
    """py-rattler reads the file back and stages the environment for a prefix that is only in the image."""
    file = env("numpy", "purepy")
    room.locked("local", env=file).expect(0)
    lock_file = name_site_folder(name_index(file), "local") / "pixi.lock"
    prefix = tmp_path / "staged"
    script = f"""{RECORDS}
import asyncio, os
from rattler import Subdir, install
records = records_of(Path(sys.argv[1]))
asyncio.run(install(records, sys.argv[2], cache_dir=Path(sys.argv[3]), platform=Subdir("linux-64"),
                    show_progress=False, alternative_target_prefix="/opt/env"))
print(len(records), flush=True)
os._exit(0)
"""
    words = [sys.executable, "-c", script, str(lock_file), str(prefix), str(tmp_path / "packages")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lock = room.read("local", env=file)
    assert int(done.stdout) == len(lock.conda)
    installed = {json.loads(path.read_text())["name"] for path in (prefix / "conda-meta").glob("*.json")}
    assert installed == {package.name for package in lock.conda}
    assert (prefix / "bin" / "python").is_file()


def test_what_cannot_be_solved_is_told_with_the_reason(room: LockRoom, env: Callable[..., Path]) -> None:
    file = env("numpy=9", "no-such-package")
    done = room.locked("local", env=file).expect(3)
    assert "]: the conda packages cannot be installed together" in done.err
    assert re.search(r"numpy|no-such-package", done.err)
    assert not name_index(file).exists()


def test_a_package_for_gpus_is_not_found_without_one(room: LockRoom, env: Callable[..., Path]) -> None:
    done = room.locked("local", env=env("gpulib=1.0=cu*_1")).expect(3)
    assert "__cuda" in done.err


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("file:///nowhere/at-all", "a channel is missing"),
        ("http://127.0.0.1:9/tiny", "the channel 'http://127.0.0.1:9/tiny' could not be reached"),
    ],
)
def test_a_channel_that_is_not_there_is_reported(
    room: LockRoom, env: Callable[..., Path], place: str, words: str
) -> None:
    done = room.locked("local", env=env("numpy", at=place)).expect(5)
    assert words in done.err
    assert "Traceback" not in done.err


def test_a_private_channel_uses_netrc_and_hides_its_password(
    room: LockRoom, env: Callable[..., Path], channel: Path
) -> None:
    with served(channel.parent, password=PASSWORD) as address:
        file = env("numpy", at=f"{address}/{channel.name}")
        refused = room.locked("local", env=file).expect(5)
        assert "401" in refused.err
        host = address.removeprefix("http://").partition(":")[0]
        netrc = room.write("home/.netrc", f"machine {host} login {USER} password {PASSWORD}\n")
        netrc.chmod(0o600)
        done = room.locked("local", env=file, NETRC=str(netrc)).expect(0)
        lock = room.read("local", env=file)
        assert all(package.url.startswith(address) for package in lock.conda)
        # By the alias of an environment variable too, for a channel that is only a name.
        named = room.write("named.yml", "name: named\nchannels: [tiny]\ndependencies: [python=3.12, mathlib]\n")
        with_user = address.replace("//", f"//{USER}:{PASSWORD}@")
        again = room.locked("local", env=named, CONDA_CHANNEL_ALIAS=with_user).expect(0)
        assert room.read("local", env=named).conda[0].url.startswith(f"{address}/tiny/")
    said = done.out + done.err + refused.err + again.out + again.err
    kept = b"".join(path.read_bytes() for path in room.folder.rglob("*") if path.is_file() and path != netrc)
    assert PASSWORD not in said
    assert PASSWORD.encode() not in kept


def test_without_a_network_the_cache_serves(room: LockRoom, env: Callable[..., Path], channel: Path) -> None:
    with served(channel.parent) as address:
        file = env("numpy", at=f"{address}/{channel.name}")
        room.locked("local", env=file).expect(0)
        first = room.written(file)
    done = room.recipe("lock", "--offline", "local", file).expect(0)
    assert "nothing has changed" in done.err
    assert room.written(file).keys() == first.keys()
    assert room.recipe("lock", "local", file).code == 5


def test_a_new_release_changes_the_lock_and_says_so(room: LockRoom, env: Callable[..., Path], tmp_path: Path) -> None:
    own = write_channel(tmp_path / "own", PACKAGES)
    file = env("purepy", at=own.as_uri())
    room.locked("local", env=file).expect(0)
    before = room.read("local", env=file)
    write_channel(own, [Tiny(name="purepy", version="2.1", build="pyh_0", subdir="noarch", depends=("python >=3.8",))])
    assert "fits" in room.recipe("lock", "--check", "local", file).expect(0).err  # a lock holds, whatever is new
    done = room.locked("local", env=file).expect(0)
    assert "purepy (conda) 2.0 pyh_0 -> 2.1 pyh_0" in done.err
    assert room.read("local", env=file).digest != before.digest


def test_an_altered_package_is_refused(room: LockRoom, env: Callable[..., Path], tmp_path: Path) -> None:
    """Over http py-rattler refuses it; of a local channel, which it does not check, a build does."""
    own = write_channel(tmp_path / "channels" / "own")
    with served(own.parent) as address:
        over_http = env("purepy", at=f"{address}/own")
        room.locked("local", env=over_http).expect(0)
        text = (name_site_folder(name_index(over_http), "local") / "pixi.lock").read_text()
        (tmp_path / "http.lock").write_text(text)
        write_package(own, Tiny(name="purepy", version="2.0", build="pyh_0", subdir="noarch", old_format=True))
        script = f"""{RECORDS}
import asyncio, os
from rattler import Subdir, install
try:
    asyncio.run(install(records_of(Path(sys.argv[1])), sys.argv[2], cache_dir=Path(sys.argv[2] + ".cache"),
                        platform=Subdir("linux-64"), show_progress=False))
    print("installed", flush=True)
except Exception as error:
    print(error, flush=True)
os._exit(0)
"""
        words = [sys.executable, "-c", script, str(tmp_path / "http.lock"), str(tmp_path / "prefix")]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "hash mismatch" in said


def test_a_build_is_given_the_locked_packages_of_a_local_channel(room: LockRoom, env: Callable[..., Path]) -> None:
    """Copied to where the explicit list names them, each compared with its hash; another file ends the build."""
    own = write_channel(room.folder / "my channel")
    file = env("purepy", "mathlib", at=own.as_uri())
    room.locked("local", env=file).expect(0)
    room.recipe("plan", "local", file, "--locked", "--backend", "apptainer", "-o", "kit").expect(0)
    inputs = room.folder / "inputs"

    def gather() -> subprocess.CompletedProcess[str]:
        script = ". ./engine.sh; inputs=$1; locked_packages"
        words = ["bash", "-c", script, "bash", str(inputs)]
        return subprocess.run(words, cwd=room.folder / "kit", capture_output=True, text=True, check=False)

    assert gather().returncode == 0
    explicit = (room.folder / "kit" / "image" / "conda-explicit.txt").read_text().splitlines()
    assert explicit[:2] == ["# platform: linux-64", "@EXPLICIT"]
    assert len(explicit) - 2 == len(room.read("local", env=file).conda)
    for line in explicit[2:]:
        place, _, digest = line.partition("#sha256:")
        copied = inputs / place.removeprefix("file:///mnt/")
        assert hashlib.sha256(copied.read_bytes()).hexdigest() == digest
    write_package(own, Tiny(name="mathlib", build="old_0", depends=("__glibc >=2.17", "more")))
    refused = gather()
    assert refused.returncode == 1
    assert "mathlib-1.0-old_0.conda is not the one that was locked" in refused.stderr


def test_the_channel_itself_is_sound(channel: Path) -> None:
    """The packages that these tests lock can be read by py-rattler as packages, in both formats."""
    from rattler import RepoDataRecord

    async def read() -> list[str]:
        files = sorted(path for path in channel.rglob("*-*") if path.suffix in (".conda", ".bz2"))
        return [(await RepoDataRecord.from_package_archive(path)).name.normalized for path in files]

    assert len(asyncio.run(read())) == len(PACKAGES)
