"""What `recipe convert` makes is known as of its archive and its plan alone, as the images of `recipe build` are."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from recipe_program import Done, Room, inside, report_of, run
from test_origin import OTHER_PLAN, RENAMES, without
from victim import Victim, ended, reached

from builder.inspect.origin import read_image_plan, read_plan_digest

pytestmark = pytest.mark.engines

OTHER = "new" * 10_000  # in an archive of another size, which is another plan
CHANGED = "x.sif' exists: a file that went into it, or its base image, has another time, size or place now"


@dataclass(kw_only=True)
class Converted(Victim):
    """Conversions of one archive in two versions: `old` first, `new` by now."""

    archive: Path

    def save(self, version: str) -> None:
        """The archive as `docker save` writes it: the base image's files, and one that says the version."""
        write_archive(self.archive, Path(self.base), version=version)

    def words(self, *more: str) -> list[str | Path]:
        return ["convert", "local", self.archive, "-o", self.image, *more]

    def convert(self, *more: str, **environment: str) -> Done:
        return self.room.recipe(*self.words(*more), **environment)

    def old(self) -> None:
        """The image of the old archive, known as such."""
        self.save("old")
        self.convert("--force").expect(0)
        assert "nothing to do" in self.convert().expect(0).err

    def version(self) -> str:
        return inside(self.image, "cat", "/version.txt")

    def is_refused(self, why: str) -> None:
        done = self.convert().expect(2)
        assert why in done.err
        assert "--force" in done.err
        assert "nothing to do" not in done.err


def write_archive(archive: Path, base: Path, *, version: str) -> None:
    own = io.BytesIO()
    with tarfile.open(fileobj=own, mode="w") as tar:
        _add(tar, "version.txt", version.encode())
    layers = {"base.tar": base.read_bytes(), f"{version}.tar": own.getvalue()}
    digests = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in layers.values()]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": digests},
        "history": [{"created_by": name} for name in layers],
    }
    manifest = [{"Config": "config.json", "RepoTags": ["x:latest"], "Layers": list(layers)}]
    with tarfile.open(archive, "w") as tar:
        for name, content in layers.items():
            _add(tar, name, content)
        _add(tar, "config.json", json.dumps(config).encode())
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o644
    tar.addfile(member, io.BytesIO(content))


@pytest.fixture
def converted(room: Room) -> Converted:
    """With a small system: a shell and what it is linked to."""
    tree = room.folder / "tree.tar"
    with tarfile.open(tree, "w", dereference=True) as tar:
        for program in ("/bin/sh", "/bin/cat"):
            linked = [word for word in run(["ldd", program]).expect(0).out.split() if word.startswith("/")]
            for path in (program, *linked):
                if path.lstrip("/") not in tar.getnames():
                    tar.add(path, recursive=False)
    return Converted(room=room, base=tree, archive=room.folder / "x.tar")


def test_fault_01_a_conversion_is_known_as_of_its_archive_and_plan(converted: Converted) -> None:
    converted.old()
    plan = converted.room.folder / "x.plan"
    assert report_of(plan)["plan"] == read_image_plan(converted.image) == read_plan_digest(plan)
    before = converted.image.stat()
    done = converted.convert().expect(0)
    assert done.out.strip() == str(converted.image)
    assert converted.image.stat() == before


def test_fault_01_another_archive_under_the_name_is_no_reason_to_do_nothing(converted: Converted) -> None:
    converted.old()
    before = converted.archive.stat()
    converted.save("new")  # of the same size; only the kernel's own time tells it
    os.utime(converted.archive, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert converted.archive.stat().st_size == before.st_size
    converted.is_refused(CHANGED)
    assert converted.version() == "old"
    converted.convert("--force").expect(0)
    assert converted.version() == "new"
    assert "nothing to do" in converted.convert().expect(0).err


def test_fault_01_a_refused_conversion_leaves_the_image_known_as_old(converted: Converted) -> None:
    converted.old()
    converted.save("new")
    less = without("apptainer", at=converted.room.folder / "less")
    converted.convert("--force", PATH=less).expect(4)
    converted.is_refused(CHANGED)
    converted.convert("--force", "--tmpdir", str(converted.room.folder / "missing")).expect(2)
    converted.is_refused(CHANGED)
    assert converted.version() == "old"


@pytest.mark.parametrize(
    ("rename", "version"),
    [("plan", OTHER), ("image", OTHER), ("report", OTHER), ("image", "new"), ("report", "new")],
    ids=["plan", "image", "report", "image of the same plan", "report of the same plan"],
)
def test_fault_01_a_conversion_that_was_killed(converted: Converted, rename: str, version: str) -> None:
    converted.old()
    converted.save(version)
    image = r"os.rename x\.sif [^ ]*/x\.sif "
    place = converted.to_stand(image if rename == "image" else RENAMES[rename][0])
    process = converted.room.start(*converted.words("--force"), **place)
    reached(process, converted.stands.exists)
    os.killpg(process.pid, signal.SIGKILL)
    assert ended(process) == -9
    of_other = RENAMES["report"][1] if rename == "report" else OTHER_PLAN
    converted.is_refused(CHANGED if version == "new" else of_other)
    assert converted.version() == (version if rename == "report" else "old")
    converted.convert("--force").expect(0)
    assert converted.version() == version
    assert "nothing to do" in converted.convert().expect(0).err
