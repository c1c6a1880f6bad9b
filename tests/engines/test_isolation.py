"""No recipe touches another one: what code of one build can write, no other build reads; no login is seen by it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from compiled_channel import MINOR, Tiny, compiled, pure, python, write_channel
from lock_room import PASSWORD, USER, served
from recipe_program import Done, Room, inside
from stand_ins.images import docker, small_debian
from tiny_index import write_index, write_sources, write_wheel

from builder.layers import bytecode
from builder.sif.errors import LayeringError

pytestmark = pytest.mark.engines

# Every file of the package that the container can see is altered, and what a build can read there is kept.
POISON = """
    name: poison
    dependencies: [{pip: [tool-stub==1.0]}]
    container:
      run:
        - |
          mkdir -p /opt/seen
          for f in $(find -L / -path /proc -prune -o -path /sys -prune -o -path '*tool_stub/__init__.py' -print); do
            echo "POISON = True" >>"$f" || true
          done
          for d in $(find /mnt /opt -name bin -path '*uv*' -type d); do
            printf '#!/bin/sh\\\\necho POISON >&2; exit 3\\\\n' >"$d/uv" || true
          done
          for d in /mnt /mnt/uv /mnt/uv/archive-v0 /mnt/given /opt/recipe-uv /opt/recipe-tools; do
            if [ -d "$d" ]; then touch "$d/canary" && echo "$d" >>/opt/seen/written || true; fi
          done
          VERIFY
          cat /mnt/settings /mnt/given/settings /run/secrets/* >>/opt/seen/settings 2>/dev/null || true
          env >>/opt/seen/settings
          cat /proc/[0-9]*/environ >>/opt/seen/settings 2>/dev/null || true
"""


def with_hashes(index: Path) -> str:
    lines = ["--require-hashes"]
    for name, version in (("tool-stub", "1.0"), ("other-stub", "2.0")):
        wheel = index / name / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def index(rooms: Callable[[str], Room]) -> Iterator[tuple[Path, str]]:
    """An index that wants a login: its folder, and its address with the login."""
    folder = rooms("isolation-index").folder / "index"
    write_index(folder, (("tool-stub", "1.0", ("other-stub",)), ("other-stub", "2.0", ())))
    with served(folder, password=PASSWORD) as address:
        yield folder, address.replace("//", f"//{USER}:{PASSWORD}@")


def build(room: Room, env: Path, base: str | Path, index: str, *more: str) -> Done:
    out = room.folder / f"{env.stem}.sif"
    own = {"UV_DEFAULT_INDEX": index, "RECIPE_CACHE_DIR": str(room.folder / "cache")}
    done = room.recipe("build", "local", env, "--base", base, *more, "--no-smoke", "-o", out, **own)
    return done.expect(0)


def snapshot(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("backend", ["apptainer", "layers"])
def test_security_04_a_recipe_cannot_poison_the_next(
    room: Room, small_sif: Path, index: tuple[Path, str], backend: str
) -> None:
    room = Room(room.folder / backend)
    folder, address = index
    words = ("--backend", backend)
    first = room.write("first.yml", "dependencies: [{pip: [tool-stub==1.0]}]\n")
    build(room, first, small_sif, address, *words)  # what was downloaded is here
    before = snapshot(room.folder / "cache" / "uv" / "archive-v0")
    assert any(name.endswith("tool_stub/__init__.py") for name in before)
    # A flat image has a copy of its own; for layers this machine reads the file afterwards.
    verify = "echo 'raise SystemExit(\"POISON\")' >/opt/recipe/build/verify.py" if backend == "layers" else "true"
    build(room, room.write("poison.yml", POISON.replace("VERIFY", verify)), small_sif, address, *words)
    assert snapshot(room.folder / "cache" / "uv" / "archive-v0") == before
    assert not [*(room.folder / "cache").rglob("canary")]
    seen = inside(room.folder / "poison.sif", "sh", "-c", "cat /opt/seen/settings")
    assert PASSWORD not in seen
    assert "127.0.0.1" in seen  # the index itself may be known
    written = inside(room.folder / "poison.sif", "sh", "-c", "cat /opt/seen/written || true").split()
    assert written == []
    second = room.write("requirements.txt", with_hashes(folder))
    build(room, second, small_sif, address, *words)
    code = "import tool_stub, other_stub; print(hasattr(tool_stub, 'POISON'))"
    assert inside(room.folder / "requirements.sif", "python3", "-c", code) == "False\n"
    for image in ("first", "poison", "requirements"):
        raw = (room.folder / f"{image}.sif").read_bytes()
        assert PASSWORD.encode() not in raw


# What ends a container step is the image's, or the recipe's: it asks for the logins, and stays when the step has ended.
GREEDY = """
    name: greedy
    dependencies: [{pip: [tool-stub==1.0]}]
    container:
      files: {chown: /usr/local/sbin/chown}
      run:
        - |
          mkdir -p /opt/seen
          if [ -p /mnt/given/ask ]; then
            echo show >/mnt/given/ask
            head -n 1 /mnt/given/answer >/opt/seen/answer
            cat /mnt/given/settings >/opt/seen/settings || true
          fi
"""
CHOWN = """#!/bin/sh
env >/mnt/overlay/upper/opt/seen/env
cat /proc/[0-9]*/cmdline >/mnt/overlay/upper/opt/seen/processes
exec /bin/chown "$@"
"""


@pytest.mark.parametrize("backend", ["apptainer", "layers"])
def test_security_04_commands_of_a_recipe_are_shown_no_login(
    room: Room, small_sif: Path, index: tuple[Path, str], backend: str
) -> None:
    room = Room(room.folder / f"greedy-{backend}")
    greedy = room.write("greedy.yml", GREEDY)
    chown = room.write("chown", CHOWN)
    chown.chmod(0o755)
    build(room, greedy, small_sif, index[1], "--backend", backend)
    seen = inside(room.folder / "greedy.sif", "sh", "-c", "cd /opt/seen && cat answer settings env || true")
    assert "over" in seen.split()
    assert PASSWORD not in seen
    assert "RECIPE_CACHE_DIR" not in seen
    if backend == "layers":  # the other one has no second step
        processes = inside(room.folder / "greedy.sif", "cat", "/opt/seen/processes")
        assert "chown" in processes
        assert "layers.json" not in processes


# The build of a source distribution, which keeps whatever it can read; another wheel of the index is needed for it.
THIEF = """
import glob, os, pathlib, zipfile
import other_stub

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    seen = [f"{name}={value}" for name, value in os.environ.items()]
    for path in ("/mnt/settings", "/mnt/given/*", "/run/secrets/*", "/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline"):
        for file in glob.glob(path):
            try:
                if not pathlib.Path(file).is_fifo():
                    seen.append(pathlib.Path(file).read_bytes().decode(errors="replace"))
            except OSError:
                pass
    info, name = "thief-1.0.dist-info", "thief-1.0-py3-none-any.whl"
    texts = {
        "thief/__init__.py": "",
        "thief/seen.txt": "\\n".join(seen),
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: thief\\nVersion: 1.0\\nRequires-Dist: tool-stub\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: tiny\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as archive:
        for path, text in {**texts, f"{info}/RECORD": "".join(f"{path},,\\n" for path in texts)}.items():
            archive.writestr(path, text)
    return name
"""


@pytest.mark.parametrize("backend", ["apptainer", "layers"])
def test_security_04_a_build_of_sources_sees_no_login(
    room: Room, small_sif: Path, index: tuple[Path, str], backend: str
) -> None:
    """What it needs of an index that wants a login comes through a door of this machine."""
    room = Room(room.folder / backend)
    folder, address = index
    write_sources(folder, name="thief", version="1.0", backend=THIEF, requires=("other-stub",))
    env = room.write("thief.yml", "dependencies: [{pip: [thief==1.0]}]\n")
    done = build(room, env, small_sif, address, "--backend", backend, "-v")
    assert "it can read the indexes, and sees no login" in done.out + done.err
    code = "import thief, pathlib; print(pathlib.Path(thief.__file__).with_name('seen.txt').read_text())"
    seen = inside(room.folder / "thief.sif", "/opt/env/bin/python", "-c", code)
    assert "UV_DEFAULT_INDEX=http://127.0.0.1:" in seen
    assert PASSWORD not in seen
    assert (
        inside(room.folder / "thief.sif", "/opt/env/bin/python", "-c", "import tool_stub; print('there')") == "there\n"
    )


@pytest.mark.parametrize("backend", ["apptainer", "layers"])
def test_security_04_a_build_of_sources_sees_no_token_of_a_path(
    room: Room, small_sif: Path, index: tuple[Path, str], backend: str
) -> None:
    """The token of an address such as anaconda.org's is a login too."""
    room, folder = Room(room.folder / backend), index[0]
    write_sources(folder, name="thief", version="1.0", backend=THIEF, requires=("other-stub",))
    (room.folder / "www" / "t").mkdir(parents=True)
    (room.folder / "www" / "t" / PASSWORD).symlink_to(folder)
    env = room.write("thief.yml", "dependencies: [{pip: [thief==1.0]}]\n")
    with served(room.folder / "www") as address:
        top = address.partition("//")[2].partition("/")[0]
        done = build(room, env, small_sif, f"http://{top}/t/{PASSWORD}/", "--backend", backend, "-v")
    assert PASSWORD not in done.out + done.err
    code = "import thief, pathlib; print(pathlib.Path(thief.__file__).with_name('seen.txt').read_text())"
    seen = inside(room.folder / "thief.sif", "/opt/env/bin/python", "-c", code)
    assert re.search(r"UV_DEFAULT_INDEX=http://127.0.0.1:\d+/[\w-]+/0/t/token-0", seen)
    assert PASSWORD not in seen


def test_security_04_docker_keeps_the_caches_of_recipes_apart(
    room: Room, base_tar: Path, docker_daemon: str, tmp_path: Path
) -> None:
    """BuildKit's caches are those of the machine: one that code can write is named by all of that code."""
    del docker_daemon
    own = tmp_path.parent.name
    name = f"isolation-test:{own}"
    docker("tag", small_debian(base_tar), name)
    wheels = room.folder / "wheels"
    wheels.mkdir()
    wheel = write_wheel(wheels, "tool-stub", "1.0", (), origin="docker")
    text = POISON.replace("VERIFY", "true").replace("name: poison", f"name: poison-{own}")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    room.write("poison.yml", text)
    room.write("requirements.txt", f"--require-hashes\ntool-stub==1.0 --hash=sha256:{digest}\n")
    try:
        for env in ("poison.yml", "requirements.txt"):
            words = ("build", "local", room.folder / env, "--base", f"docker://docker.io/library/{name}", "--no-smoke")
            links = f"{wheels} {os.environ.get('PIP_FIND_LINKS', '')}"
            out = room.folder / f"{Path(env).stem}.sif"
            room.recipe(*words, "--backend", "docker", "-o", out, PIP_FIND_LINKS=links.strip()).expect(0)
    finally:
        made = docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", f"recipe/poison-{own}-local").split()
        docker("rmi", "--force", name, *made)
    code = "import tool_stub; print(hasattr(tool_stub, 'POISON'))"
    assert inside(room.folder / "requirements.sif", "python3", "-c", code) == "False\n"


# --- nothing of a recipe's packages runs on this machine -------------------------------------------------------------


def canary_python(canary: Path) -> Tiny:
    """A channel's Python that leaves a mark wherever it is started."""
    own = python()
    script = f'#!/bin/sh\ntouch {canary} || true\nexec /usr/bin/python{MINOR} "$@"\n'
    return replace(own, files={**own.files, f"bin/python{MINOR}": script})


def test_security_08_the_python_of_a_channel_does_not_run_here(room: Room, small_sif: Path) -> None:
    canary = room.folder / "CANARY"
    packages = (canary_python(canary), *compiled(room.folder / "c"), pure())
    channel = write_channel(room.folder / "channel", packages)
    text = f"channels: [{channel.as_uri()}]\ndependencies: [python={MINOR}, greetpy]\n"
    env, out = room.write("demo.yml", text), room.folder / "x.sif"
    words = ("build", "local", env, "--base", small_sif, "--backend", "layers", "--no-smoke", "-o", out)
    room.recipe(*words, RECIPE_CACHE_DIR=str(room.folder / "cache")).expect(0)
    assert not canary.exists()
    cached = inside(out, "find", "/opt/env/lib", "-name", f"__init__.cpython-{MINOR.replace('.', '')}.pyc")
    assert "greetpy/__pycache__" in cached  # somebody compiled them


def test_security_08_an_images_python_compiles_in_a_container(room: Room, small_sif: Path) -> None:
    """Where this machine has no Python of that version: no home, and nothing but its own folder is written."""
    folder, own, canary = room.folder / "site", room.folder / "own", room.folder / "CANARY"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "m.py").write_text("VALUE = 1\n")
    (own / "bin").mkdir(parents=True)
    program = own / "bin" / "python3.11"
    program.write_text(
        f'#!/bin/sh\ntouch {canary} /mnt/CANARY /media/own/CANARY $HOME/CANARY 2>/dev/null\nexec python3 "$@"\n'
    )
    program.chmod(0o755)
    found = bytecode.find_image_compiler("3.11", runtime="apptainer", base=small_sif, python="bin/python3.11", own=own)
    pieces = found.compile(folder, ["lib/m.py"], prefix="/opt/env", workers=1, out=room.folder)
    assert [piece.path for piece in pieces] == ["lib/__pycache__/m.cpython-311.pyc"]
    assert not [*room.folder.rglob("CANARY")]
    assert not Path.home().joinpath("CANARY").exists()
    # What it says that it has written is held against what it was asked for.
    program.write_text(
        program.read_text().replace('"$@"', '"$@"; true').replace("exec ", "")
        + ('[ ! -d /media/out ] || echo "1 ../../../victim.pyc" >>/media/out/0.index\n')
    )
    with pytest.raises(LayeringError, match="other files than it was given"):
        found.compile(folder, ["lib/m.py"], prefix="/opt/env", workers=1, out=room.folder)


@pytest.mark.parametrize(
    ("path", "link"),
    [
        ("../../../../escape.txt", ""),
        ("a/../../escape.txt", ""),
        ("/escape.txt", ""),
        ("share/x", "/etc"),
        ("share/x", "../../x"),
    ],
)
def test_security_08_a_package_that_leads_out_is_not_linked(room: Room, small_sif: Path, path: str, link: str) -> None:
    room = Room(room.folder / hashlib.sha256(f"{path} {link}".encode()).hexdigest()[:8])
    files = {"share/evil.txt": "x\n", **({} if link else {path: "x\n"})}
    bad = Tiny(name="evil", files=files, links={path: link} if link else {})
    channel = write_channel(room.folder / "channel", (python(), *compiled(room.folder / "c"), bad))
    env = room.write("demo.yml", f"channels: [{channel.as_uri()}]\ndependencies: [python={MINOR}, evil]\n")
    words = ("build", "local", env, "--base", small_sif, "--backend", "layers", "--no-smoke", "-o", room.folder / "x")
    done = room.recipe(*words, RECIPE_CACHE_DIR=str(room.folder / "cache")).expect(5)
    assert not [path for path in room.folder.rglob("escape.txt") if path.parent.name != "evil-1.0-0"]
    assert "Traceback" not in done.err
    if link:
        assert "leads out of the environment" in done.err + room.log(room.folder / "x.plan")
