"""What a container step, a base image or a recipe's folder leaves may lead anywhere: nothing there is touched."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from recipe_program import QUICK_ARGUMENTS, Done, Room, inside, run

pytestmark = pytest.mark.engines
ROOT = Path(__file__).parents[2]

# Each leaves a link to the folder of the user at places that are cleaned, or written below, after a step.
LINES = {
    "logs": "rm -rf /var/log && ln -s {mine} /var/log",
    "root": "rm -rf /root && ln -s {mine} /root",
    "var": "umount /var/tmp; mv /var /v; ln -sfn {mine} /var; ls -ld /var",
    "opt": "umount /opt/recipe/build; mv /opt /o; ln -sfn {mine} /opt; ls -ld /opt",
    "etc": "mv /etc /e; ln -sfn {mine} /etc; ls -ld /etc",
    "tmp": "umount /tmp; rmdir /tmp; ln -sfn {mine} /tmp; ls -ld /tmp",
    "own": "umount /opt/recipe/build; mv /opt/recipe /r; ln -sfn {mine} /opt/recipe; ls -ld /opt/recipe",
    "caches": "rm -rf /var/cache /var/lib; ln -s {mine} /var/cache; ln -s {mine} /var/lib",
    "relative": "rm -rf /var/log && ln -s ../../../../../../../../../../../../{mine} /var/log",
    "chain": "ln -s {mine} /one && ln -s one /two && rm -rf /var/log /root && ln -s /two /var/log && ln -s /two /root",
    "inner": "mkdir -p /var/log/x && ln -s {mine} /var/log/x/y && ln -s {mine} /var/log/z",
    "to-root": "rm -rf /root && ln -s / /root",
}
HELD = ("docs", "log", "tmp", "lib/apt/lists", "cache/apt", ".cache", ".conda", "recipe/build", "apt/lists", "build")


def users_folder(folder: Path) -> Path:
    """A home with everything that cleaning would look for."""
    for name in HELD:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "thesis.tex").write_text("years of work")
    (folder / "resolv.conf").write_text("mine")
    (folder / "shared").mkdir(exist_ok=True)
    (folder / "shared").chmod(0o2775)
    return folder


def snapshot(folder: Path) -> list[tuple[str, int, str]]:
    paths = sorted([folder, *folder.rglob("*")])
    return [(str(one), one.lstat().st_mode, one.read_text() if one.is_file() else "") for one in paths]


def build(room: Room, base: Path, text: str, *more: str) -> Done:
    recipe = room.write("own.yml", text)
    words = ("build", "local", recipe, "--base", base, "--backend", "layers", "--no-smoke", "-o", room.folder / "x.sif")
    return room.recipe(*words, *more, RECIPE_CACHE_DIR=str(room.folder / "cache"))


@pytest.mark.parametrize("name", LINES)
def test_security_01_no_link_of_a_step_is_followed(rooms: Callable[[str], Room], base_sif: Path, name: str) -> None:
    room = rooms(f"links-{name}")
    mine = users_folder(room.folder / "mine")
    before = snapshot(mine)
    line = LINES[name].format(mine=mine)
    done = build(room, base_sif, f"name: own\ndependencies: []\ncontainer:\n  run:\n    - '{line}'\n")
    assert snapshot(mine) == before
    assert "Traceback" not in done.out + done.err
    assert done.code in (0, 5), done.err


def test_security_01_what_install_sh_cleans_lies_in_the_container(room: Room, base_sif: Path) -> None:
    """A flat image is cleaned by install.sh inside: there a link of a step leads to the container's own files."""
    mine = users_folder(room.folder / "mine")
    before = snapshot(mine)
    places = ("/var/log", "/root", "/var/cache", "/var/lib", "/opt/recipe/tools")
    lines = [f"rm -rf {place} && mkdir -p {Path(place).parent} && ln -s {mine} {place}" for place in places]
    lines.append(f"test ! -e {mine} || touch {mine}/reached")  # nothing of this machine is there to be followed
    recipe = room.write("own.yml", yaml.safe_dump({"dependencies": [], "container": {"run": lines}}))
    words = ("build", "local", recipe, "--base", base_sif, "--backend", "apptainer", "--no-smoke")
    room.recipe(*words, "-o", room.folder / "x.sif", RECIPE_CACHE_DIR=str(room.folder / "cache")).expect(0)
    assert snapshot(mine) == before
    assert inside(room.folder / "x.sif", "readlink", "/var/log") == f"{mine}\n"


@pytest.mark.parametrize("backend", ["layers", "apptainer"])
def test_a_step_has_a_shared_memory_folder_of_its_own(
    rooms: Callable[[str], Room], base_sif: Path, backend: str
) -> None:
    room, mine = rooms(f"shm-{backend}"), Path(f"/dev/shm/recipe-test-{os.getpid()}")
    mine.mkdir()
    (mine / "a").write_text("mine")
    try:
        line = f"ls -A /dev/shm | grep . && exit 9; rm -rf {mine}; touch /dev/shm/new-{os.getpid()}"
        text = yaml.safe_dump({"dependencies": [], "container": {"run": [line]}})
        build(room, base_sif, text, "--backend", backend).expect(0)
        assert (mine / "a").read_text() == "mine"
        assert not Path(f"/dev/shm/new-{os.getpid()}").exists()
    finally:
        shutil.rmtree(mine, ignore_errors=True)


@pytest.mark.parametrize("odd", ['x" f 444 0 0 touch CANARY', "a b", "a\\b c", "#x", "-p y"])
def test_security_01_a_name_is_no_word_of_mksquashfs(rooms: Callable[[str], Room], base_sif: Path, odd: str) -> None:
    """What a step has removed by replacing its folder is told to mksquashfs by its name."""
    room = rooms(f"odd-{len(odd)}{odd[0].isalpha()}")
    first = f"mkdir -p /srv/odd && echo 1 > {shlex.quote(f'/srv/odd/{odd}')} && echo 1 > /srv/odd/kept"
    build(room, base_sif, yaml.safe_dump({"dependencies": [], "container": {"run": [first]}})).expect(0)
    (room.folder / "x.sif").rename(room.folder / "base.sif")
    assert odd in inside(room.folder / "base.sif", "ls", "/srv/odd")
    again = "rm -rf /srv/odd && mkdir /srv/odd && echo 2 > /srv/odd/kept"
    build(room, room.folder / "base.sif", yaml.safe_dump({"dependencies": [], "container": {"run": [again]}})).expect(0)
    assert inside(room.folder / "x.sif", "ls", "-A", "/srv/odd") == "kept\n"
    assert not [*room.folder.rglob("CANARY")]


def test_security_01_an_image_keeps_the_links_that_its_recipe_wants(room: Room, base_sif: Path) -> None:
    line = "rm -rf /var/log && ln -s /scratch/logs /var/log && mkdir -p /opt/own && ln -s own /opt/link"
    build(room, base_sif, f"name: own\ndependencies: []\ncontainer:\n  run:\n    - '{line}'\n").expect(0)
    image = room.folder / "x.sif"
    assert inside(image, "readlink", "/var/log") == "/scratch/logs\n"
    assert inside(image, "readlink", "/opt/link") == "own\n"
    assert inside(image, "readlink", "/lib") == "usr/lib\n"


def test_security_17_an_unreadable_folder_of_a_step_alone_is_removed(room: Room, base_sif: Path) -> None:
    mine = users_folder(room.folder / "mine")
    before = snapshot(mine)
    line = (
        f"mkdir -p /opt/a/b && ln -s {mine}/shared /opt/a/b/link && mkfifo /opt/a/pipe && chmod 000 /opt/a/b && exit 3"
    )
    build(room, base_sif, f"name: own\ndependencies: []\ncontainer:\n  run:\n    - '{line}'\n").expect(5)
    assert snapshot(mine) == before
    work = room.folder / "cache" / "layers-1" / "work"
    assert list(work.iterdir()) == []
    assert stat.S_IMODE((mine / "shared").stat().st_mode) == 0o2775


# In a mount namespace of the user's own: something is mounted in a folder that a build removes.
MOUNTED = """
import sys
from pathlib import Path
from builder.sif import removal, tree
top = Path(sys.argv[1])
print([entry.path for entry in tree.walk(top)])
print(removal.remove(top), removal.remove(Path(top.name), below=top.parent), top.is_dir())
"""


@pytest.mark.parametrize(("how", "seen"), [("--bind", True), ("--rbind", True), ("-t tmpfs", False)])
@pytest.mark.parametrize("name", ["top", "a b\t\n\\c"])
def test_security_01_what_is_mounted_below_a_folder_is_not_removed(
    rooms: Callable[[str], Room], name: str, how: str, seen: bool
) -> None:
    room = rooms(f"mounted-{len(name)}-{how.strip('-')[:2]}")
    mine, top = users_folder(room.folder / "mine"), room.folder / name
    (top / "a" / "b").mkdir(parents=True)
    before = snapshot(mine)
    script = f'mount {how} "$1" "$2" && touch "$2/canary" && shift 2 && "$@" && test -e "$0/canary"'
    words = ["unshare", "--user", "--map-current-user", "--mount", "--keep-caps", "sh", "-c", script, top / "a" / "b"]
    done = run([*words, mine, top / "a" / "b", sys.executable, "-c", MOUNTED, top], cwd=ROOT).expect(0)
    (mine / "canary").unlink(missing_ok=True)
    assert snapshot(mine) == before
    found, removed = done.out.splitlines()
    assert ("a/b/docs/thesis.tex" in found, "a/b" in found) == (seen, True)
    assert ("canary" in found) is seen  # another file system is not entered
    assert removed == "False False True"


DEEP = "/".join(str(number) for number in range(16))
ODD = 'x" f 444 0 0 touch CANARY #'
LINKED = f"""
    mkdir -p /q /opt/t/{DEEP}; rmdir /opt/t/{DEEP}; ln -s /q /opt/t/{DEEP}; ln -s /q/y /q/d
    mkdir -p /data/real; ln -s /data/real /opt/data; ln -s run /var/own; mkdir /var/run2
    mkdir /names; touch '/names/{ODD}' '/names/with blank' '/names/b\\s'
"""


@pytest.fixture(scope="module")
def linked_base(rooms: Callable[[str], Room], base_sif: Path) -> Path:
    """The test base with more folders, links and names."""
    room = rooms("linked-base")
    definition = room.write("base.def", f"Bootstrap: localimage\nFrom: {base_sif}\n%post\n{LINKED}")
    target = room.folder / "base.sif"
    packing = ("--mksquashfs-args", QUICK_ARGUMENTS)
    run(["apptainer", "build", "--fakeroot", *packing, target, definition], cwd=room.folder).expect(0)
    return target


def test_security_02_files_are_not_written_through_links_of_base_and_folder(room: Room, linked_base: Path) -> None:
    """The base moves a folder up, so that a link in it leads further than it did where it lay."""
    mine = users_folder(room.folder / "mine")
    (mine / ".bashrc").write_text("# my own")
    before = snapshot(mine)
    tree = room.folder / "tree" / DEEP
    (tree / "d").mkdir(parents=True)
    (tree / "d" / ".bashrc").write_text("touch CANARY")
    (tree / "y").symlink_to("../" * 16 + str(mine).lstrip("/"))
    text = "name: own\ndependencies: []\ncontainer:\n  files:\n    tree: /opt/t\n"
    done = build(room, linked_base, text)
    assert snapshot(mine) == before
    assert done.code in (2, 5)
    assert "fix:" in done.err
    assert not (room.folder / "x.sif").exists()


def test_security_02_files_through_links_of_the_base_that_stay_inside(room: Room, linked_base: Path) -> None:
    for name, text in {"a/file": "content", "b/file": "other"}.items():
        room.write(f"tree/{name}", text)
    (room.folder / "tree" / "a" / "link").symlink_to("../b/file")
    (room.folder / "tree" / "folder").symlink_to("a")
    text = "name: own\ndependencies: []\ncontainer:\n  files:\n    tree: /opt/data/tree\n"
    build(room, linked_base, text).expect(0)
    image = room.folder / "x.sif"
    assert inside(image, "readlink", "/opt/data") == "/data/real\n"
    assert inside(image, "cat", "/data/real/tree/a/link", "/opt/data/tree/folder/file") == "othercontent"
    assert os.path.lexists(room.folder / "tree" / "folder")


def test_security_02_a_name_in_a_base_image_is_no_command_of_the_packer(room: Room, linked_base: Path) -> None:
    """Names that a step hides by replacing their folder are told to mksquashfs, whose language knows commands."""
    assert sorted(inside(linked_base, "ls", "/names").splitlines()) == sorted([ODD, "with blank", "b\\s"])
    text = "name: own\ndependencies: []\ncontainer:\n  run:\n    - rm -r /names && mkdir /names && touch /names/new\n"
    build(room, linked_base, text).expect(0)
    assert list(room.folder.rglob("CANARY")) == []
    assert inside(room.folder / "x.sif", "ls", "/names") == "new\n"
