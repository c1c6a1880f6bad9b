"""An image is never said to be of a plan that it was not made from, whatever came between two builds."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from recipe_program import Room, inside, run
from victim import RUN, Victim, ended, reached

from builder.sif.bounded import hash_file

pytestmark = pytest.mark.engines

RECIPE = "name: x\ndependencies: [{pip: [six==VERSION]}]\ncontainer: {files: {notes.txt: /opt/notes.txt}}\n"
VERSION = ("python3", "-c", "import six; print(six.__version__)")
OTHER_PLAN = "x.sif' exists: it was built from another plan"
UNREPORTED = "x.sif' exists: it was built from this plan by a build that was ended before it could write its report"
# Every rename of a build that replaces an image, in its order; the image is the new one from the fifth on.
RENAMES = {
    "old products": (r"os.rename \S*\.old\.json\.recipe-\S* ", OTHER_PLAN),
    "sources": (r"os.rename \S*\.sources\.recipe-\S* ", OTHER_PLAN),
    "a script": (r"os.rename ^engine\.sh engine\.sh ", OTHER_PLAN),
    "plan": (r"os.rename ^plan\.json plan\.json ", OTHER_PLAN),
    "image": (r"os.rename x-local\.sif [^ ]*/x\.sif ", OTHER_PLAN),
    "bill": (r"os.rename \S*x\.sif\.cdx\.json\.recipe-\S* ", UNREPORTED),
    "provenance": (r"os.rename \S*x\.sif\.provenance\.json\.recipe-\S* ", UNREPORTED),
    "report": (r"os.rename \S*report\.json\.recipe-\S* ", UNREPORTED),
}


def copy(paths: Iterable[Path], folder: Path) -> None:
    """With their times and links."""
    run(["cp", "-a", *paths, folder]).expect(0)


@dataclass(kw_only=True)
class Old(Victim):
    """An image of six 1.16.0, whose recipe asks for 1.17.0 by now."""

    backend: str

    def recipe(self, version: str) -> Path:
        return self.room.write("x.yml", RECIPE.replace("VERSION", version))

    def words(self, version: str, *more: str | Path) -> list[str | Path]:
        where = ["--base", self.base, "--backend", self.backend]
        return ["build", "local", self.recipe(version), *where, "-o", self.image, "--no-smoke", *more]

    def put_back(self) -> None:
        """The image of 1.16.0 as it was, with its plan, its papers and its report: built once, then copied back."""
        for path in self.products():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self.kept.exists():
            copy(self.kept.iterdir(), self.room.folder)
        else:
            self.room.recipe(*self.words("1.16.0")).expect(0)
            self.kept.mkdir()
            copy(self.products(), self.kept)
        assert "nothing to do" in self.room.recipe(*self.words("1.16.0")).expect(0).err

    @property
    def kept(self) -> Path:
        return self.room.folder / "kept"

    def products(self) -> list[Path]:
        return [*self.room.folder.glob("x.sif*"), *self.room.folder.glob("x.plan")]

    def is_refused(self, why: str) -> None:
        done = self.room.recipe(*self.words("1.17.0")).expect(2)
        assert why in done.err
        assert "--force" in done.err


@pytest.fixture(scope="module")
def old(request: pytest.FixtureRequest, rooms: Callable[[str], Room], small_sif: Path) -> Old:
    made = Old(room=rooms(f"origin-{request.param}"), base=small_sif, backend=request.param)
    if not made.kept.exists():  # the time of a file that goes into the image is part of what it was made of
        made.room.write("notes.txt", "notes\n")
    made.put_back()
    made.before = hash_file(made.image)
    return made


def without(program: str, *, at: Path, path: str = "") -> str:
    """A PATH on which one program is missing."""
    at.mkdir(exist_ok=True)
    for folder in reversed((path or os.environ["PATH"]).split(":")):
        for found in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if found.name not in (program, "singularity"):
                (at / found.name).unlink(missing_ok=True)
                (at / found.name).symlink_to(found)
    return str(at)


@pytest.mark.parametrize("old", ["layers", "apptainer"], indirect=True)
@pytest.mark.parametrize("between", ["no temporary folder", "no engine", "plan", "no key"])
def test_fault_01_what_ends_before_it_builds_leaves_the_old_image_known_as_old(old: Old, between: str) -> None:
    room, force = old.room, old.words("1.17.0", "--force")
    if between == "no temporary folder":
        room.recipe(*force, "--tmpdir", room.folder / "missing").expect(2)
    elif between == "no engine":
        program = "mksquashfs" if old.backend == "layers" else "apptainer"
        room.recipe(*force, PATH=without(program, at=room.folder / f"no-{program}")).expect(4)
    elif between == "no key":
        room.recipe(*force, "--sign", APPTAINER_KEYSDIR=str(room.folder / "no-keys")).expect(4)
    else:
        where = ("--base", old.base, "--backend", old.backend)
        room.recipe("plan", "local", old.recipe("1.17.0"), *where, "-o", room.folder / "x.plan", "--force").expect(0)
    old.is_refused(OTHER_PLAN)
    assert hash_file(old.image) == old.before
    assert inside(old.image, *VERSION) == "1.16.0\n"
    room.recipe("inspect", "--integrity", old.image).expect(0)


# What is renamed is the same for every backend.
@pytest.mark.parametrize(
    ("old", "rename"), [*(("layers", rename) for rename in RENAMES), ("apptainer", "image")], indirect=["old"]
)
def test_fault_01_a_build_killed_at_a_rename(old: Old, rename: str) -> None:
    place, why = RENAMES[rename]
    new = why is UNREPORTED
    old.put_back()
    process = old.room.start(*old.words("1.17.0", "--force"), **old.to_stand(place))
    reached(process, old.stands.exists)
    os.killpg(process.pid, signal.SIGKILL)
    assert ended(process) == -9
    old.is_refused(why)
    assert inside(old.image, *VERSION) == ("1.17.0\n" if new else "1.16.0\n")
    done = old.room.recipe("inspect", "--integrity", old.image).expect(8 if new else 0)
    assert ("is of another plan than the image" in done.out) == new
    old.room.recipe(*old.words("1.17.0", "--force")).expect(0)
    assert "nothing to do" in old.room.recipe(*old.words("1.17.0")).expect(0).err
    assert inside(old.image, *VERSION) == "1.17.0\n"
    old.room.recipe("inspect", "--integrity", old.image).expect(0)


@pytest.mark.parametrize("old", ["layers"], indirect=True)
def test_an_image_keeps_its_records_when_a_build_is_stopped(old: Old) -> None:
    old.put_back()
    process = old.room.start(*old.words("1.17.0", "--force"), **old.to_stand(RUN + r"bash 1-build-image\.sh"))
    reached(process, old.stands.exists)
    os.killpg(process.pid, signal.SIGINT)
    assert ended(process) == 130
    assert hash_file(old.image) == old.before
    assert "BAD" not in old.room.recipe("inspect", "--integrity", old.image).expect(0).out
    assert "interrupted" not in old.room.recipe("report", old.image).expect(0).out
    old.is_refused(OTHER_PLAN)
    assert "nothing to do" in old.room.recipe(*old.words("1.16.0")).expect(0).err
    assert "BAD" not in old.room.recipe("inspect", "--integrity", old.image).expect(0).out


@pytest.mark.parametrize("old", ["layers"], indirect=True)
def test_fault_08_an_image_without_a_report_is_proven_by_its_smoke_test(old: Old) -> None:
    place, _ = RENAMES["report"]
    old.put_back()
    process = old.room.start(*old.words("1.17.0", "--force"), **old.to_stand(place))
    reached(process, old.stands.exists)
    os.killpg(process.pid, signal.SIGKILL)
    assert ended(process) == -9
    built = hash_file(old.image)
    old.room.recipe(*[word for word in old.words("1.17.0") if word != "--no-smoke"], "--from", "smoke").expect(0)
    assert hash_file(old.image) == built
    assert "nothing to do" in old.room.recipe(*old.words("1.17.0")).expect(0).err
    old.room.recipe("inspect", "--integrity", old.image).expect(0)


@pytest.mark.parametrize("old", ["layers"], indirect=True)
def test_fault_01_a_file_changed_under_its_old_time_is_reported(old: Old) -> None:
    old.put_back()
    notes = old.room.folder / "notes.txt"
    before = notes.stat()
    shutil.rmtree(old.kept)  # of the file as it was
    notes.write_text("other\n")
    os.utime(notes, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = old.room.recipe(*old.words("1.16.0")).expect(2)
    assert "a file that went into it, or its base image, has another time, size or place now" in done.err
    old.room.recipe(*old.words("1.16.0", "--force")).expect(0)
    assert inside(old.image, "cat", "/opt/notes.txt") == "other\n"
