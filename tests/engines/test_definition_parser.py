"""Apptainer itself reads every definition file of the matrix; the images in it are replaced by one that is here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_program import QUICK_ARGUMENTS, Done, Room, run
from support.matrix import plans

pytestmark = pytest.mark.engines

HEADER = re.compile(r"^Bootstrap: (\w+)\nFrom: (\S+)$", re.MULTILINE)
AGENTS = {"docker", "localimage", "oras", "library", "docker-archive"}
SHELL = (
    *(f"./{name}" for name in ("bin", "sbin", "lib", "lib64", "usr/lib64/*")),
    *(f"./usr/bin/{name}" for name in ("sh", "dash", "bash", "ls", "true")),
    *(
        f"./usr/lib/x86_64-linux-gnu/{name}.so*"
        for name in ("ld-linux*", "libc", "libselinux", "libpcre2*", "libtinfo")
    ),
)
SECTIONS = ["files", "post", "test", "help"]


def definitions() -> dict[str, list[str]]:
    """Every different text, its images left open, with the plans that have it."""
    found: dict[str, list[str]] = {}
    for case, plan in plans():
        for file in plan.files:
            if file.path.endswith(".def"):
                agents = {agent for agent, _ in HEADER.findall(file.text)}
                assert agents <= AGENTS, (case.name, agents)
                text = HEADER.sub("Bootstrap: localimage\nFrom: BASE", file.text)
                found.setdefault(text, []).append(case.name)
    return found


@pytest.fixture(scope="module")
def shell(rooms: Callable[[str], Room], base_tar: Path) -> Path:
    """Debian's shell and `ls` with their libraries as an image: unpacked and packed at once."""
    room = rooms("shell")
    tree = room.folder / "tree"
    tree.mkdir()
    run(["tar", "--extract", "--file", base_tar, "--directory", tree, "--wildcards", *SHELL]).expect(0)
    for name in ("dev", "proc", "sys", "tmp", "etc"):
        (tree / name).mkdir(exist_ok=True)
    words = ["apptainer", "build", "--mksquashfs-args", QUICK_ARGUMENTS, room.folder / "shell.sif", tree]
    run(words, env=room.environment(), cwd=room.folder).expect(0)
    return room.folder / "shell.sif"


def parsed(text: str, room: Room, *, name: str) -> Done:
    """What the engine says of a definition file whose one script does nothing here."""
    folder = room.folder / name
    (folder / "image").mkdir(parents=True)
    (folder / "image" / "install.sh").write_text("test -x /opt/recipe/build/install.sh || true\n", encoding="utf-8")
    (folder / "x.def").write_text(text.replace("/bin/micromamba", "/bin/true"), encoding="utf-8")
    words = ["apptainer", "build", "--notest", "--mksquashfs-args", QUICK_ARGUMENTS]
    return run([*words, "x.sif", "x.def"], env=room.environment(), cwd=folder)


def test_there_are_definition_files_of_both_kinds() -> None:
    texts = definitions()
    assert {"%files from mamba" in text for text in texts} == {True, False}
    assert sum(map(len, texts.values())) >= 15


@pytest.mark.parametrize("number", range(len(definitions())))
def test_the_engine_reads_a_definition_file(number: int, room: Room, shell: Path) -> None:
    text = list(definitions())[number]
    done = parsed(text.replace("BASE", str(shell)), room, name=str(number)).expect(0)
    assert "ignor" not in done.err.lower()
    image = room.folder / str(number) / "x.sif"
    kept = run(["apptainer", "inspect", "--deffile", image], env=room.environment()).expect(0).out
    for section in SECTIONS:
        assert re.search(rf"^%{section}\b", kept, re.MULTILINE), section
    assert "sh /opt/recipe/build/install.sh all" in kept
    program = "test -e /opt/recipe/micromamba && echo there; ls /opt/recipe/build"
    listed = run(["apptainer", "exec", "--contain", image, "sh", "-c", program], env=room.environment()).expect(0).out
    assert listed.split() == (["there", "install.sh"] if "mamba" in text else ["install.sh"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("%post", "%pots"), "invalid section"),
        (("Bootstrap: localimage", "Bootstrap: nowhere"), "nowhere"),
        (("/opt/recipe/build\n", "/opt/{{ recipe }}/build\n"), "recipe"),
    ],
)
def test_the_parser_would_refuse_a_faulty_one(room: Room, shell: Path, change: tuple[str, str], words: str) -> None:
    text = next(text for text in definitions() if "mamba" not in text)
    assert change[0] in text
    done = parsed(text.replace(*change).replace("BASE", str(shell)), room, name=change[1][1:6].strip("/{ "))
    assert done.code != 0
    assert words in done.err
