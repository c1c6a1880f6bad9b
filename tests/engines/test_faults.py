"""What goes wrong with real engines: every failure has its exit code, one cause and one fix, and leaves nothing."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from elsewhere import on_another_machine
from recipe_program import LIMIT, Done, Room, inside, offsets, processes, report_of, run, stop, until_text
from stand_ins.private_index import private_index
from stand_ins.wheels import write_wheel

pytestmark = pytest.mark.engines

PLAIN = "name: x\ndependencies:\n  - pip: [six==1.16.0]\n"
PASSWORD = "hunter2-Tr0ub4dor"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A room and a base image."""

    room: Room
    base: Path

    def words(self, text: str, *more: str | Path) -> list[str | Path]:
        recipe = self.room.write("x.yml", text)
        return ["build", "local", recipe, "--base", self.base, "-o", self.room.folder / "x.sif", *more]

    def fails(self, text: str, *more: str | Path, code: int = 5, **environment: str) -> Done:
        """A build that ends with the code, says one error with one fix, and leaves nothing."""
        done = self.room.recipe(*self.words(text, *more), **environment).expect(code)
        assert sum(line.startswith("error") for line in done.err.splitlines()) == 1, done.err
        assert done.err.count("\n  fix: ") == 1, done.err
        assert not (self.room.folder / "x.sif").exists()
        assert self.room.left_behind() == []
        return done


@pytest.fixture
def bench(room: Room, base_sif: Path) -> Bench:
    return Bench(room=room, base=base_sif)


def running(command: str) -> str:
    """A recipe whose own command says that it runs, then takes its time."""
    return PLAIN + f"container:\n  run: ['echo we are in post && {command}']\n"


# --- the recipe's faults ---------------------------------------------------------------------------------------------


def test_a_version_that_does_not_exist(bench: Bench) -> None:
    done = bench.fails(PLAIN.replace("1.16.0", "99.0"))
    assert "error[no-package]" in done.err
    assert "there is no 'six==99.0'" in done.err
    assert report_of(bench.room.folder / "x.plan")["steps"][0]["exit_code"] == 1


def test_an_own_command_that_fails(bench: Bench) -> None:
    done = bench.fails(running("cp /no/such/file /opt"))
    assert "cannot stat '/no/such/file'" in done.err


# --- the machine's faults --------------------------------------------------------------------------------------------


def test_an_index_that_cannot_be_reached(bench: Bench) -> None:
    cache = bench.room.folder / "cache"
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_FIND_LINKS": "", "RECIPE_CACHE_DIR": str(cache)}
    done = bench.fails(PLAIN, **nowhere)
    assert "could not reach a server" in done.err


def elsewhere(bench: Bench, text: str, *more: str, tmpfs: str, **environment: str) -> Done:
    """The same on a machine with a small disk, by a user without a range of ids."""
    return on_another_machine(bench.room, bench.words(text, "--no-smoke", *more), tmpfs=tmpfs, **environment)


def test_a_machine_without_ranges_of_user_ids(bench: Bench) -> None:
    elsewhere(bench, PLAIN + "container: {system: [less]}\n", tmpfs="size=6g").expect(0)
    assert inside(bench.room.folder / "x.sif", "less", "--version").startswith("less ")
    assert bench.room.left_behind() == []


def test_a_too_small_disk_is_reported_before_any_work(bench: Bench) -> None:
    done = elsewhere(bench, PLAIN, "--backend", "apptainer", tmpfs="size=64m").expect(4)
    assert re.search(r"has [0-9]+ MiB free, and the build needs [1-9]\.\d GiB", done.err)
    assert "--tmpdir" in done.err
    assert bench.room.left_behind() == []


@pytest.mark.parametrize(
    ("backend", "inodes", "code", "message"),
    [("apptainer", 900, 5, "no space was left on the disk"), ("layers", 60, 4, "more files (`df -i`)")],
)
def test_a_disk_that_takes_no_more_files(
    backend: str, inodes: int, code: int, message: str, room: Room, base_sif: Path
) -> None:
    # Space enough, and too few inodes: what a quota of files does on a parallel file system.
    room = Room(room.folder / backend)
    bench = Bench(room=room, base=base_sif)
    cache = {"RECIPE_CACHE_DIR": str(room.folder / "small" / "cache")} if backend == "layers" else {}
    words = ("--backend", backend)
    done = elsewhere(bench, PLAIN, *words, tmpfs=f"size=6g,nr_inodes={inodes}", **cache).expect(code)
    assert message in done.err
    assert not (bench.room.folder / "x.sif").exists()
    assert bench.room.left_behind() == []


# --- stopped, and twice at once --------------------------------------------------------------------------------------


def write_sleep() -> str:
    """A command that lasts, and that nothing else on this machine is."""
    return f"sleep {random.randint(1000, 9999)}.{random.randint(10**9, 10**10)}"


def until_running(sleep: str) -> list[str]:
    """Wait for the process of that command alone: what has it among other words has yet to start it."""
    end = time.monotonic() + LIMIT
    while not (found := [line for line in processes(sleep) if line.split(maxsplit=1)[1].strip() == sleep]):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


@pytest.mark.parametrize(
    ("number", "code", "whole_group"),
    [(signal.SIGTERM, 143, False), (signal.SIGINT, 130, True)],
    ids=["term", "ctrl-c"],
)
def test_a_build_that_is_stopped_leaves_nothing(
    rooms: Callable[[str], Room], base_sif: Path, number: signal.Signals, code: int, whole_group: bool
) -> None:
    bench = Bench(room=rooms(f"stopped-{code}"), base=base_sif)
    sleep = write_sleep()
    process = bench.room.start(*bench.words(running(sleep)))
    until_text(bench.room.folder / "x.plan" / "logs" / "build-image.log", "we are in post", process=process)
    until_running(sleep)  # it comes after the text
    done = stop(process, number, whole_group=whole_group).expect(code)
    assert done.seconds < 60
    assert "interrupted" in done.out
    assert processes(sleep) == []
    assert bench.room.left_behind() == []
    assert not (bench.room.folder / "x.sif").exists()
    report = report_of(bench.room.folder / "x.plan")
    assert (report["status"], report["steps"][0]["exit_code"]) == ("interrupted", code)
    if number == signal.SIGTERM:
        bench.room.recipe(*bench.words(PLAIN)).expect(0)
        assert inside(bench.room.folder / "x.sif", "python3", "-c", "import six; print(1)") == "1\n"


def test_two_builds_of_one_image_at_once(bench: Bench) -> None:
    # Never done before: a layer that is in the cache is not made again. It goes on when its sleep has been ended.
    sleep = write_sleep()
    env = running(f"{sleep} || true")
    first = bench.room.start(*bench.words(env))
    until_text(bench.room.folder / "x.plan" / "logs" / "build-image.log", "we are in post", process=first)
    second = bench.room.recipe(*bench.words(env)).expect(2)
    assert "another build of this output is running" in second.err
    assert f"pid {first.pid} " in second.err
    for line in until_running(sleep):
        with suppress(ProcessLookupError):
            os.kill(int(line.split()[0]), signal.SIGTERM)
    out, _ = first.communicate(timeout=LIMIT)
    assert first.returncode == 0, out
    assert inside(bench.room.folder / "x.sif", "python3", "-c", "import six; print(1)") == "1\n"
    assert bench.room.left_behind() == []


# --- what a user's environment may hold ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Private:
    """A build from an index with a password, on a machine whose modules bind folders."""

    room: Room
    done: Done
    address: str


@pytest.fixture(scope="module")
def private(rooms: Callable[[str], Room], base_sif: Path) -> Iterator[Private]:
    bench = Bench(room=rooms("private"), base=base_sif)
    wheel = write_wheel(bench.room.folder / "served", name="private-thing", version="1.0")
    with private_index(wheel, user="reader", password=PASSWORD) as address:
        environment = {
            "PIP_EXTRA_INDEX_URL": f"http://reader:{PASSWORD}@{address}/simple",
            "RECIPE_CACHE_DIR": str(bench.room.folder / "cache"),
            "APPTAINER_BIND": "/nonexistent:/x",
            "SINGULARITY_BINDPATH": "/nonexistent:/x",
            "APPTAINER_MOUNT": "type=bind,src=/nonexistent,dst=/x",
        }
        words = bench.words(PLAIN.replace("six==1.16.0", "private-thing==1.0"), "--verbose")
        done = bench.room.recipe(*words, **environment)
        yield Private(room=bench.room, done=done, address=address)


def test_binds_of_site_modules_do_not_reach_a_build(private: Private) -> None:
    private.done.expect(0)
    answer = inside(private.room.folder / "x.sif", "python3", "-c", "import private_thing as p; print(p.__version__)")
    assert answer == "1.0\n"


def test_a_password_of_an_index_is_nowhere(private: Private, tmp_path: Path) -> None:
    private.done.expect(0)
    image = private.room.folder / "x.sif"
    # The names of other files are public: only the compressed part of the image has to be unpacked to be read.
    tree = tmp_path / "tree"
    for offset in offsets(image):
        words = ["unsquashfs", "-force", "-quiet", "-no-progress", "-no-xattrs", "-o", offset, "-d", tree, image]
        assert run(words).code in (0, 2)  # 2: what a user may not restore, such as owners
    assert (tree / "opt" / "env" / "bin" / "python").is_symlink()
    places = [image, private.room.folder / "x.plan", private.room.folder / "cache", tree]
    found = run(["grep", "--recursive", "--text", "--files-with-matches", PASSWORD, *places])
    assert (found.code, found.out) == (1, "")
    assert PASSWORD not in private.done.out + private.done.err
    assert (private.room.folder / "x.plan" / "logs" / "build-image.log").stat().st_size > 0


def test_a_wrong_password_is_explained_and_not_shown(private: Private, base_sif: Path) -> None:
    bench = Bench(room=Room(private.room.folder / "wrong"), base=base_sif)
    wrong = f"not-{PASSWORD[::-1]}"
    done = bench.fails(
        PLAIN.replace("six==1.16.0", "private-thing==1.0"),
        PIP_EXTRA_INDEX_URL=f"http://reader:{wrong}@{private.address}/simple",
        RECIPE_CACHE_DIR=str(bench.room.folder / "cache"),
    )
    assert "wants a login" in done.err
    assert wrong not in done.err + bench.room.log(bench.room.folder / "x.plan")


def test_the_settings_of_the_tests_are_those_of_the_user() -> None:
    assert os.getuid() != 0, "engines are used by an ordinary user: tests/testbed/as-user.sh pytest"
