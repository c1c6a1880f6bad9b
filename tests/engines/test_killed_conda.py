"""Builds of conda layers that are killed while py-rattler unpacks and links, and after it: never a wrong image."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from compiled_channel import MINOR, compiled, pure, python, wide, write_channel
from recipe_program import LIMIT, Room, inside, processes
from victim import RUN, Victim, ended, reached

from builder.sif.bounded import hash_file

pytestmark = pytest.mark.engines

PACKAGES, FILES = 40, 100
RECIPE = "name: x\nchannels: [{channel}]\ndependencies: [python={minor}, {more}]\n"
# As the layering program does its own part, before py-rattler and after it.
PLACES = {
    "solve": RUN + r".*conda_worker\.py",
    "record": r"open [^ /]+-[^ /-]+-[^ /-]+\.json",  # of conda-meta, opened below its folder
    "compile": RUN + r".*bytecode_worker\.py",
    "pack": RUN + r"mksquashfs .*-noappend",
}
CODE = f"""
import glob, greetpy, os, wide_007.part_0
print(len(glob.glob('/opt/env/conda-meta/*.json')), os.path.exists(wide_007.part_0.__cached__))
print(sum(len(names) for _, _, names in os.walk('/opt/env/share')))
print(open('/opt/env/share/wide-{PACKAGES - 1:03}/1/1.txt').read().split()[0])
"""


@dataclass(kw_only=True)
class Linked(Victim):
    """Of a channel; what is killed would make another image, with more packages."""

    channel: Path

    def words(self, more: str) -> tuple[str | Path, ...]:
        text = RECIPE.format(channel=self.channel.as_uri(), minor=MINOR, more=more)
        recipe = self.room.write("x.yml", text)
        return ("build", "local", recipe, "--base", self.base, "-o", self.image, "--no-smoke", "--force")

    def build(self, more: str) -> str:
        self.room.recipe(*self.words(more), RECIPE_CACHE_DIR=str(self.cache)).expect(0)
        return hash_file(self.image)

    def begin(self, *, unpacked: bool, **settings: str) -> subprocess.Popen[str]:
        """Start the build with no layer in the cache, and with or without the packages unpacked by an earlier one."""
        shutil.copy(self.room.folder / "before", self.image)
        last, self.caches = self.cache, self.caches + 1
        if unpacked:
            self.cache.mkdir()
            (last / "conda").rename(self.cache / "conda")
        shutil.rmtree(last)
        return self.room.start(*self.words("wide, greetpy"), RECIPE_CACHE_DIR=str(self.cache), **settings)


@pytest.fixture(scope="module")
def victim(rooms: Callable[[str], Room], base_sif: Path) -> Linked:
    room = rooms("killed-conda")
    packages = (python(), *compiled(room.folder / "c"), pure(), *wide(packages=PACKAGES, files=FILES))
    made = Linked(room=room, base=base_sif, channel=write_channel(room.folder / "channel", packages))
    made.after = made.build("wide, greetpy")
    assert made.build("wide, greetpy") == made.after
    assert inside(made.image, "python", "-c", CODE).split() == expected()
    made.before = made.build("greetpy")
    shutil.copy(made.image, room.folder / "before")
    return made


def expected() -> list[str]:
    """What CODE prints in a whole image: 3 packages of the compiled channel, the wide ones, and the one over them."""
    texts = sum(number % 3 != 1 for number in range(PACKAGES)) * FILES
    return [str(3 + PACKAGES + 1), "True", str(texts + 1), "/opt/env"]


def workers(word: str) -> list[int]:
    """The processes of py-rattler that have a word in their command lines."""
    return [int(line.split()[0]) for line in processes(word) if "conda_worker.py" in line]


def send(process: int, number: signal.Signals) -> None:
    """Send a signal to a process, which may have ended since it was found."""
    with suppress(ProcessLookupError):
        os.kill(process, number)


def in_the_midst(victim: Linked, process: subprocess.Popen[str], pattern: str, *, most: int) -> bool:
    """Have py-rattler stand still while there is a part of something; False where it was too fast."""
    reached(process, lambda: any(victim.cache.glob(pattern)), pause=0.002)
    for number in workers(str(victim.cache)):
        send(number, signal.SIGSTOP)
    return 0 < len(list(victim.cache.glob(pattern))) < most


def die(victim: Linked, process: subprocess.Popen[str], *, whole: bool) -> None:
    """Kill `recipe` and its group; all that it started too where the whole machine goes down."""
    os.killpg(process.pid, signal.SIGKILL)
    for line in processes(str(victim.room.folder)) if whole else ():
        send(int(line.split()[0]), signal.SIGKILL)
    for number in workers(str(victim.room.folder)):
        send(number, signal.SIGCONT)  # it goes on linking under the next build
    assert ended(process) == -9


def check(victim: Linked) -> None:
    """The image that was there stays, the next build is right and leaves nothing of the other."""
    assert hash_file(victim.image) == victim.before
    assert victim.build("wide, greetpy") == victim.after
    assert victim.room.left_behind() == []
    assert list(victim.cache.glob("layers-1/work/*")) == []
    assert inside(victim.image, "python", "-c", CODE).split() == expected()


@pytest.mark.parametrize("whole", [True, False], ids=["all", "recipe"])
@pytest.mark.parametrize(
    ("unpacked", "pattern", "most"),
    [
        (False, "conda/packages/wide-*/info/index.json", PACKAGES),
        (True, "layers-1/work/*/tree/opt/env/conda-meta/*.json", PACKAGES + 4),
    ],
    ids=["unpack", "link"],
)
def test_killed_in_the_midst_of_py_rattler(
    victim: Linked, unpacked: bool, pattern: str, most: int, whole: bool
) -> None:
    for _ in range(10):
        process = victim.begin(unpacked=unpacked)
        caught = in_the_midst(victim, process, pattern, most=most)
        die(victim, process, whole=whole)
        if caught:
            break
        victim.build("wide, greetpy")  # it was too fast for us: what it left is put right, and another one begins
    assert caught
    check(victim)


def test_py_rattler_alone_is_killed(victim: Linked) -> None:
    """As the kernel does where memory is short."""
    process = victim.begin(unpacked=True)
    found: list[int] = []
    reached(process, lambda: bool(found.extend(workers(str(victim.cache))) or found))
    os.kill(found[0], signal.SIGKILL)
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 5, said
    assert "py-rattler was killed by signal 9" in said
    assert victim.room.left_behind() == []
    check(victim)


@pytest.mark.parametrize("phase", PLACES)
def test_killed_before_or_after_py_rattler(victim: Linked, phase: str) -> None:
    process = victim.begin(unpacked=True, **victim.to_stand(PLACES[phase]))
    reached(process, victim.stands.exists)
    die(victim, process, whole=False)
    check(victim)
