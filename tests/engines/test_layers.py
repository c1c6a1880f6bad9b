"""Images out of layers, with real Apptainer: the same bytes always, whole or not at all, as good as flat ones."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_program import Done, Room, inside, listing, report_of, run, until_text

from builder.layers.cache import CacheEntry, Store, hash_file
from builder.layers.image_file import Layer, write_image
from builder.sif.sif import read_sif, write_header

pytestmark = pytest.mark.engines

RECIPE = """
    name: demo
    dependencies:
      - pip: [six==1.16.0, odd-wheel==1.0]
    container:
      files: {data: /lib/demo}
      env: {COLOUR: blue}
      labels: {purpose: layers}
"""


def odd_wheel(folder: Path) -> Path:
    """A wheel with everything that an installer has to place: scripts, data files, a .pth file."""
    folder.mkdir(parents=True, exist_ok=True)
    info = "odd_wheel-1.0.dist-info"
    files = {
        "odd/__init__.py": "def main():\n    print('odd says hello')\n",
        "odd/data.txt": "data\n",
        "odd.pth": "/opt/odd-path\n",
        "odd_wheel-1.0.data/scripts/odd-script": "#!python\nimport sys\nprint(sys.prefix)\n",
        "odd_wheel-1.0.data/data/share/odd/shared.txt": "shared\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: odd-wheel\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nodd = odd:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    path = folder / "odd_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), text)
    return path


@pytest.fixture(scope="module")
def wheels(rooms: Callable[[str], Room]) -> Path:
    return odd_wheel(rooms("wheels").folder).parent


def environment(room: Room, wheels: Path, **more: str) -> dict[str, str]:
    links = " ".join([os.environ.get("PIP_FIND_LINKS", ""), str(wheels)]).strip()
    return {"RECIPE_CACHE_DIR": str(room.folder / "cache"), "PIP_FIND_LINKS": links} | more


def make(room: Room, base: Path, wheels: Path, *more: str, umask: int = 0o022, text: str = RECIPE, **env: str) -> Done:
    """Build with a cache of the room's own."""
    room.write("data/notes.txt", "notes\n")
    recipe = room.write("demo.yml", text)
    words = ("build", "local", recipe, "--base", base, "-o", room.folder / "x.sif", "--no-smoke", *more)
    return room.recipe(*words, umask=umask, **environment(room, wheels, **env))


@pytest.fixture(scope="module")
def demo(rooms: Callable[[str], Room], base_sif: Path, wheels: Path) -> Room:
    room = rooms("demo")
    make(room, base_sif, wheels).expect(0)
    return room


def test_scripts_data_files_and_path_files_of_wheels(demo: Room) -> None:
    image = demo.folder / "x.sif"
    assert inside(image, "odd") == "odd says hello\n"
    assert inside(image, "odd-script") == "/opt/env\n"
    code = "import odd, os; print(os.listdir(odd.__path__[0]), odd.__cached__)"
    out = inside(image, "python3", "-c", code)
    assert "data.txt" in out
    assert out.strip().endswith("odd/__pycache__/__init__.cpython-311.pyc")
    assert inside(image, "cat", "/opt/env/share/odd/shared.txt") == "shared\n"
    code = "from importlib.metadata import files; print(all(file.locate().exists() for file in files('odd-wheel')))"
    assert inside(image, "python3", "-c", code) == "True\n"


def test_a_link_of_the_base_stays_one(demo: Room) -> None:
    # /lib is a link in Debian: a folder of that name in a layer would hide the C library.
    image = demo.folder / "x.sif"
    assert inside(image, "readlink", "/lib") == "usr/lib\n"
    assert inside(image, "cat", "/lib/demo/notes.txt", "/usr/lib/demo/notes.txt") == "notes\nnotes\n"


@pytest.mark.parametrize(
    "options",
    [[], ["--contain"], ["--cleanenv"], ["--writable-tmpfs"], ["--no-home", "--containall"], ["--nv"], ["--rocm"]],
)
def test_plain_commands_work(options: list[str], demo: Room, tmp_path: Path) -> None:
    image = shutil.copy(demo.folder / "x.sif", tmp_path / "moved.sif")
    code = "import six, os; print(six.__version__, os.environ['COLOUR'])"
    for way in ("exec", "run"):
        done = run(["apptainer", way, *options, image, "python3", "-c", code]).expect(0)
        assert done.out == "1.16.0 blue\n"
    assert run(["apptainer", "test", image]).code == 0
    for name in ("one.sif", "two.sif"):
        assert Path(image).with_name(name).exists() is False


def test_another_user_runs_it(demo: Room) -> None:
    """Of the builder's range of ids: for the kernel it is somebody else, who may read the image and nothing more."""
    with tempfile.TemporaryDirectory(prefix="shared-") as folder:
        Path(folder).chmod(0o755)
        image = Path(shutil.copy(demo.folder / "x.sif", folder))
        image.chmod(0o644)
        name = pwd.getpwuid(os.getuid()).pw_name
        rows = [line.split(":") for line in Path("/etc/subuid").read_text().splitlines()]
        (start,) = {int(row[1]) for row in rows if row[0] == name}
        ids = f"{start},0,65536"
        other = ["unshare", "--user", "--map-users", ids, "--map-groups", ids, "--setuid", "1", "--setgid", "1"]
        code = "import six, os; print(six.__version__, os.environ['COLOUR'], os.getuid(), os.access('/opt', os.W_OK))"
        for options in ([], ["--contain"], ["--writable-tmpfs"]):
            words = [*other, "apptainer", "exec", "--no-home", *options, image, "python3", "-c", code]
            done = run(words, cwd=Path("/")).expect(0)
            assert done.out == "1.16.0 blue 1 False\n"
        assert run([*other, "sh", "-c", 'echo x >>"$0"', image], cwd=Path("/")).code != 0


def test_the_same_bytes_for_every_user_place_and_time(
    rooms: Callable[[str], Room], demo: Room, base_sif: Path, wheels: Path
) -> None:
    other = rooms("another/place")
    base = Path(shutil.copy(base_sif, other.folder / "renamed.sif"))
    os.utime(base, (1, 1))
    done = make(
        other, base, wheels, umask=0o077, LC_ALL="C", TZ="Asia/Tokyo", PYTHONHASHSEED="7", HOME=str(other.folder)
    )
    done.expect(0)
    names = [[row["sha256"] for row in made_of(room)["layers"][:-1]] for room in (demo, other)]
    assert names[0] == names[1]
    # The base's name is in recipe.json: with the same name all of it is the same.
    again = rooms("third")
    make(again, base_sif, wheels, umask=0o002, SOURCE_DATE_EPOCH="315532800").expect(0)
    assert hash_file(again.folder / "x.sif") == hash_file(demo.folder / "x.sif")


def made_of(room: Room) -> dict[str, list[dict[str, str]]]:
    return dict(json.loads((room.folder / "x.plan" / "made-of.json").read_text()))


def test_a_changed_file_changes_its_layer_alone(rooms: Callable[[str], Room], base_sif: Path, wheels: Path) -> None:
    room = rooms("changed")
    make(room, base_sif, wheels).expect(0)
    before = {row["title"]: row["sha256"] for row in made_of(room)["layers"]}
    make(room, base_sif, wheels, "--force", text=RECIPE.replace("1.16.0", "1.17.0")).expect(0)
    after = {row["title"]: row["sha256"] for row in made_of(room)["layers"]}
    assert {title for title in after if after[title] != before[title]} == {"packages", "recipe"}
    log = room.log(room.folder / "x.plan")
    assert "layer files: 0.0 MB, from the cache" in log


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("folder", "/etc/debian_version", "'/etc/debian_version' is a file of the image"),
        ("folder", "/etc/debian_version/below", "'/etc/debian_version' is a file of the image"),
        ("notes.txt", "/usr/share/doc", "'/usr/share/doc' is a folder of the image"),
    ],
)
def test_own_files_keep_the_kinds_of_the_base(
    rooms: Callable[[str], Room], base_sif: Path, wheels: Path, source: str, target: str, said: str
) -> None:
    room = rooms("kinds")
    (room.folder / "folder").mkdir(exist_ok=True)
    room.write("folder/x", "x")
    room.write("notes.txt", "x")
    text = f"name: kinds\ndependencies: []\ncontainer: {{files: {{{source}: {target}}}}}\n"
    done = make(room, base_sif, wheels, text=text).expect(5)
    assert said in done.err


@pytest.mark.parametrize("fault", ["altered", "cut"])
def test_a_cached_layer_that_was_altered_is_made_again(fault: str, demo: Room, base_sif: Path, wheels: Path) -> None:
    right = hash_file(demo.folder / "x.sif")
    path = max((demo.folder / "cache" / "layers-1" / "layers").glob("*.sqfs"), key=lambda path: path.stat().st_size)
    content = path.read_bytes()
    path.write_bytes(content[:-1] if fault == "cut" else content[:-1] + bytes([content[-1] ^ 1]))
    make(demo, base_sif, wheels, "--force").expect(0)
    assert hash_file(demo.folder / "x.sif") == right
    assert ("was altered: it is made again" in demo.log(demo.folder / "x.plan")) == (fault == "altered")


def test_the_cache_is_shown_checked_and_shrunk(demo: Room) -> None:
    env = {"RECIPE_CACHE_DIR": str(demo.folder / "cache")}
    assert "packages" in demo.recipe("cache", "ls", **env).expect(0).out
    demo.recipe("cache", "check", **env).expect(0)
    path = next((demo.folder / "cache" / "layers-1" / "layers").glob("*.sqfs"))
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert "altered, removed" in demo.recipe("cache", "check", **env).expect(5).out
    demo.recipe("cache", "prune", "--gib", "0", **env).expect(0)
    shown = demo.recipe("cache", "ls", **env).expect(0)
    assert (shown.out, "MB by uv" in shown.err) == ("", True)
    (demo.folder / "cache" / "conda" / "packages").mkdir(parents=True)
    (demo.folder / "cache" / "uv" / "notes.txt").write_text("mine")
    store = Store(demo.folder / "cache")
    with store.lock_downloads():
        assert "a build is using" in demo.recipe("cache", "prune", "--downloads", **env).expect(4).err
        assert (demo.folder / "cache" / "conda").is_dir()
    said = demo.recipe("cache", "prune", "--downloads", **env).expect(0).err
    assert "of downloads removed" in said
    assert "note: not made by recipe, kept: uv/notes.txt\n" in said
    assert "downloaded" not in demo.recipe("cache", "ls", **env).expect(0).err
    assert not (demo.folder / "cache" / "conda" / "packages").exists()


def test_a_build_that_was_killed_leaves_nothing_in_the_way(
    rooms: Callable[[str], Room], base_sif: Path, wheels: Path
) -> None:
    room = rooms("killed")
    room.write("data/notes.txt", "notes\n")
    recipe = room.write("demo.yml", RECIPE + "      run: ['echo we are inside && sleep 300']\n")
    words = ("build", "local", recipe, "--base", base_sif, "-o", room.folder / "x.sif", "--no-smoke")
    process = room.start(*words, **environment(room, wheels))
    until_text(room.folder / "x.plan" / "logs" / "build-image.log", "we are inside", process=process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    assert not (room.folder / "x.sif").exists()
    make(room, base_sif, wheels, "--force").expect(0)
    assert inside(room.folder / "x.sif", "odd") == "odd says hello\n"


def test_another_base_under_the_same_name_is_another_image(
    rooms: Callable[[str], Room], base_sif: Path, wheels: Path
) -> None:
    room = rooms("rebased")
    base = room.folder / "base.sif"
    shutil.copy(base_sif, base)
    make(room, base, wheels).expect(0)
    first = made_of(room)["base"]
    with base.open("ab") as file:
        file.write(b"\0" * 4096)
    make(room, base, wheels, "--force").expect(0)
    assert made_of(room)["base"] != first
    overlay = room.folder / "overlay.sqfs"
    run(["mksquashfs", wheels, overlay, "-quiet", "-no-progress"]).expect(0)
    words = ["--datatype", "4", "--parttype", "4", "--partfs", "1", "--partarch", "2", "--groupid", "1"]
    run(["apptainer", "sif", "add", *words, base, overlay]).expect(0)
    done = make(room, base, wheels, "--force").expect(5)
    assert "holds overlays of its own" in done.err
    assert report_of(room.folder / "x.plan")["status"] == "failed"


def test_what_we_append_is_what_the_engine_appends(base_sif: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_text("x")
    layer = tmp_path / "layer.sqfs"
    run(["mksquashfs", tree, layer, "-quiet", "-no-progress"]).expect(0)
    theirs = Path(shutil.copy(base_sif, tmp_path / "theirs.sif"))
    words = ["--datatype", "4", "--parttype", "4", "--partfs", "1", "--partarch", "2", "--groupid", "1"]
    run(["apptainer", "sif", "add", *words, theirs, layer]).expect(0)
    entry = CacheEntry(
        kind="layers", key="k", path=layer, sha256=hash_file(layer), size=layer.stat().st_size, title="t"
    )
    write_image(base_sif, [Layer(entry=entry)], tmp_path / "ours.sif", time=7)
    with theirs.open("r+b") as file:
        write_header(file, read_sif(theirs), time=7)
    assert (tmp_path / "ours.sif").read_bytes() == theirs.read_bytes()


def test_what_a_step_removed_is_gone(rooms: Callable[[str], Room], base_sif: Path, wheels: Path) -> None:
    room = rooms("removed")
    folder = "/etc/apt/apt.conf.d"
    commands = f"      run: ['rm -r {folder} && mkdir {folder} && touch {folder}/own && rm /etc/issue']\n"
    make(room, base_sif, wheels, text=RECIPE + commands).expect(0)
    image = room.folder / "x.sif"
    assert inside(image, "ls", "-A", "/etc/apt/apt.conf.d") == "own\n"
    assert run(["apptainer", "exec", image, "test", "-e", "/etc/issue"]).code == 1


def test_what_a_step_closes_is_packed_with_its_mode(rooms: Callable[[str], Room], base_sif: Path, wheels: Path) -> None:
    room = rooms("closed")
    command = "mkdir /opt/made && echo made >/opt/made/file && chmod 0 /opt/made/file /opt/made"
    make(room, base_sif, wheels, text=RECIPE + f"      run: ['{command}']\n").expect(0)
    modes = listing(room.folder / "x.sif")
    assert (modes["/opt/made"], modes["/opt/made/file"]) == ("d---------", "----------")


@pytest.mark.parametrize("backend", ["layers", "apptainer"])
def test_a_command_that_closes_the_environment_is_named(
    backend: str, rooms: Callable[[str], Room], base_sif: Path, wheels: Path
) -> None:
    """As root of its container a step can still read what it has closed, and no user of the image can."""
    room = rooms(f"closing-{backend}")
    run = "run: ['true', 'chmod -R a-rwx /opt/env', 'echo afterwards']"
    text = f"name: demo\ndependencies: [{{pip: [odd-wheel]}}]\ncontainer: {{{run}}}\n"
    done = make(room, base_sif, wheels, "--backend", backend, text=text).expect(5)
    said = "command 2 of container.run (chmod -R a-rwx /opt/env) closed or removed '/opt/env'"
    assert said in " ".join(done.err.split())
    assert not (room.folder / "x.sif").exists()


@pytest.mark.parametrize("backend", ["layers", "apptainer"])
@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("rm -f /bin/sh", "/bin/sh"),
        ("rm -f /usr/bin/env", "/usr/bin/env"),
        ("rm -rf /lib64", "/lib64/ld-linux-x86-64.so.2"),
    ],
)
def test_a_command_that_removes_what_starts_programs_is_named(
    command: str, path: str, backend: str, rooms: Callable[[str], Room], base_sif: Path, wheels: Path
) -> None:
    room = rooms(f"starting-{backend}-{path.rpartition('/')[2]}")
    text = f"name: demo\ndependencies: [{{pip: [odd-wheel]}}]\ncontainer: {{run: ['true', '{command}']}}\n"
    done = make(room, base_sif, wheels, "--backend", backend, text=text).expect(5)
    assert f"closed or removed '{path}': users could not start the image" in " ".join(done.err.split())
    assert not (room.folder / "x.sif").exists()


@pytest.mark.parametrize("backend", ["layers", "apptainer"])
def test_a_damaged_base_image_is_named(
    backend: str, rooms: Callable[[str], Room], base_sif: Path, wheels: Path
) -> None:
    room = rooms(f"damaged-{backend}")
    base, data = room.folder / "base.sif", bytearray(base_sif.read_bytes())
    start = read_sif(base_sif).system.offset
    for at in range(start + 2_000_000, start + 12_000_000, 40_000):
        data[at : at + 64] = b"\xff" * 64
    base.write_bytes(data)
    text = "name: demo\ndependencies: [{pip: [odd-wheel]}]\ncontainer: {run: ['cat /usr/bin/* >/dev/null']}\n"
    done = make(room, base, wheels, "--backend", backend, text=text).expect(5)
    assert f"the base image '{base}' is damaged, or its disk cannot be read" in " ".join(done.err.split())
