"""What is learnt of a base image is remembered only where all of it could be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.file_trees import image_of, pack

from builder.layers.base_facts import read_base_facts
from builder.layers.cache import Store
from builder.lock.base_lock import lock_base
from builder.lock.session import Session
from builder.model.site import BaseImage
from builder.sif.errors import LayeringError
from builder.sif.sif import read_sif

LIBC = "lib/x86_64-linux-gnu/libc.so.6"
VERSION = "GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36."


class Bed:
    """A cache, and base images whose C library holds a text."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.tree = folder, Store(folder / "cache"), folder / "tree"
        (self.tree / ".singularity.d/env").mkdir(parents=True)

    def image(self, libc: str = "") -> Path:
        if libc:
            (self.tree / LIBC).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / LIBC).write_text(libc)
        packed = pack(self.tree, self.folder / "base.sqfs", "-comp", "gzip", "-all-root", "-nopad")
        return image_of(self.folder / "base.sif", packed)

    def known(self) -> list[Path]:
        return [*(self.store.folder / "facts").iterdir()]


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_what_was_read_whole_is_remembered(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    image = bed.image(VERSION)
    assert read_base_facts(image, store=bed.store).glibc == "2.36"
    assert len(bed.known()) == 1
    monkeypatch.setattr("builder.layers.base_facts._read_contents", None)  # nothing is read out of it again
    assert read_base_facts(image, store=bed.store).glibc == "2.36"


def test_no_program_is_needed_to_know_a_base(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, text in (
        ("usr/bin/python3.11", "program"),
        (".singularity.d/env/10-path.sh", "export PATH=/opt/bin:/usr/bin\n"),
        (".singularity.d/runscript", "#!/bin/sh\nexec true\n"),
        (".singularity.d/labels.json", '{"a": "b"}'),
    ):
        (bed.tree / path).parent.mkdir(parents=True, exist_ok=True)
        (bed.tree / path).write_text(text)
    (bed.tree / "usr/bin/python3").symlink_to("python3.11")
    (bed.tree / "bin").symlink_to("usr/bin")
    (bed.tree / "secret").mkdir(mode=0o700)
    image = bed.image(VERSION)
    monkeypatch.setenv("PATH", "/nonexistent")
    facts = read_base_facts(image, store=bed.store)
    assert (facts.python, facts.minor, facts.glibc) == ("/usr/bin/python3.11", "3.11", "2.36")
    assert (facts.labels, facts.runscript) == ({"a": "b"}, True)
    assert (facts.links["/bin"], facts.folders["/secret"]) == ("usr/bin", 0o700)


def test_a_lock_reads_the_python_and_the_glibc_without_an_engine(bed: Bed, tmp_path: Path) -> None:
    (bed.tree / "usr/bin").mkdir(parents=True)
    (bed.tree / "usr/bin/python3.11").touch()
    (bed.tree / "usr/bin/python3").symlink_to("python3.11")
    base = BaseImage(reference=str(bed.image(VERSION)), source=())
    session = Session(environment={"PATH": "/nonexistent"}, work=tmp_path, cache=tmp_path)
    found = lock_base(base, own=False, name="base.sif", packages=False, runtimes=("apptainer",), session=session)
    assert (found.python, found.glibc, found.provides) == ("3.11", "2.36", {})


@pytest.mark.parametrize("part", ["tables", "content"])
def test_fault_02_a_damaged_base_is_not_remembered(bed: Bed, part: str) -> None:
    image = bed.image(VERSION * 9999)
    system = read_sif(image).system
    sound = image.read_bytes()
    at = system.offset + (100 if part == "content" else system.size - 200)
    image.write_bytes(sound[:at] + b"\xff" * 40 + sound[at + 40 :])
    with pytest.raises(LayeringError, match="cannot be read"):
        read_base_facts(image, store=bed.store)
    assert bed.known() == []
    image.write_bytes(sound)
    assert read_base_facts(image, store=bed.store).glibc == "2.36"


def test_fault_02_a_glibc_that_says_no_version_is_looked_at_again(bed: Bed) -> None:
    for _ in range(2):
        assert read_base_facts(bed.image(VERSION[:20]), store=bed.store).glibc == ""
        assert bed.known() == []
    assert read_base_facts(bed.image(VERSION), store=bed.store).glibc == "2.36"


def test_an_image_without_glibc_is_known_as_one(bed: Bed) -> None:
    assert read_base_facts(bed.image(), store=bed.store).glibc == ""
    assert len(bed.known()) == 1
