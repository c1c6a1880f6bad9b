"""What is learnt of a base image is remembered only where the program that reads it has ended well."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import bombs

from builder.layers.base_facts import read_base_facts
from builder.layers.cache import Store
from builder.sif.errors import LayeringError

LIBC = "lib/x86_64-linux-gnu/libc.so.6"
LISTING = f"""drwxr-xr-x 0/0 30 2026-01-01 00:00 squashfs-root
drwxr-xr-x 0/0 30 2026-01-01 00:00 squashfs-root/lib
-rwxr-xr-x 0/0 900 2026-01-01 00:00 squashfs-root/{LIBC}
"""
VERSION = "GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36."
# -lln lists; else what is named is written below the word behind -d.
STAND_IN = """#!/bin/sh
case " $* " in *" -lln "*) cat "{folder}/listing"; {list_ends} ;; esac
while [ "$1" != -d ]; do shift; done
mkdir -p "$2/{above}" && printf '%s' '{content}' >"$2/{libc}"
{ends}
"""


class Bed:
    """A base image, a cache and a stand-in for the program that reads images."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store(folder / "cache")
        self.image = bombs.sif(folder / "base.sif", [])
        (folder / "bin").mkdir()
        (folder / "listing").write_text(LISTING)

    def reads(self, content: str, *, ends: str = "exit 0", list_ends: str = "exit 0") -> None:
        text = STAND_IN.format(
            folder=self.folder, list_ends=list_ends, above=str(Path(LIBC).parent), content=content, libc=LIBC, ends=ends
        )
        (self.folder / "bin" / "unsquashfs").write_text(text)
        (self.folder / "bin" / "unsquashfs").chmod(0o755)

    def known(self) -> list[Path]:
        return [*(self.store.folder / "facts").iterdir()]


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return Bed(tmp_path)


def test_what_was_read_whole_is_remembered(bed: Bed) -> None:
    bed.reads(VERSION)
    assert read_base_facts(bed.image, store=bed.store).glibc == "2.36"
    assert len(bed.known()) == 1
    bed.reads("", ends="exit 1")  # nothing is read out of it again
    assert read_base_facts(bed.image, store=bed.store).glibc == "2.36"


@pytest.mark.parametrize("ends", ["exit 1", "exit 2", "exit 255", "kill -KILL $$", "kill -TERM $$"])
@pytest.mark.parametrize("step", ["list_ends", "ends"])
@pytest.mark.parametrize("content", [VERSION, VERSION[:20]], ids=["whole", "cut"])
def test_fault_02_what_a_program_read_that_ended_badly_is_not_believed(
    bed: Bed, ends: str, step: str, content: str
) -> None:
    """As on a full disk (exit code 1 and 2), or when it is killed."""
    bed.reads(content, **{step: ends})
    with pytest.raises(LayeringError, match="failed with exit code"):
        read_base_facts(bed.image, store=bed.store)
    assert bed.known() == []
    bed.reads(VERSION)
    assert read_base_facts(bed.image, store=bed.store).glibc == "2.36"


def test_fault_02_a_glibc_that_says_no_version_is_looked_at_again(bed: Bed) -> None:
    bed.reads(VERSION[:20])
    assert read_base_facts(bed.image, store=bed.store).glibc == ""
    assert bed.known() == []
    bed.reads(VERSION)
    assert read_base_facts(bed.image, store=bed.store).glibc == "2.36"


def test_an_image_without_glibc_is_known_as_one(bed: Bed) -> None:
    (bed.folder / "listing").write_text(LISTING.splitlines(keepends=True)[0])
    bed.reads("")
    assert read_base_facts(bed.image, store=bed.store).glibc == ""
    assert len(bed.known()) == 1
