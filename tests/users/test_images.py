"""Images of another user: what is refused is said before any work, with what this user can do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from user import THEIRS, User

HEAD = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\0"
OWNER = f"ask uid {THEIRS}, whose it is, to type `chmod o+r"
RECIPE = "name: six\ndependencies: [{pip: [six==1.16.0]}]\n"
ANOTHER = "choose another output with -o"


@pytest.fixture
def theirs(shared: Path) -> Path:
    """Folders of another user's: `shut` may not be entered, `fixed` not be written; `x.sif` of all may be read."""
    for name, mode in (("shut", 0o700), ("fixed", 0o755)):
        (shared / name).mkdir()
        (shared / name).chmod(mode)
    for name, mode in (("shut/x.sif", 0o644), ("fixed/x.sif", 0o644), ("x.sif", 0o644), ("closed.sif", 0o600)):
        (shared / name).write_bytes(HEAD)
        (shared / name).chmod(mode)
    for path in (shared / "shut", shared / "fixed", *shared.rglob("*.sif")):
        os.chown(path, THEIRS, THEIRS)
    return shared


LINES = (
    ("run local closed.sif -- true", "'closed.sif' may not be read", f"{OWNER} closed.sif`"),
    ("smoke local closed.sif", "'closed.sif' may not be read", f"{OWNER} closed.sif`"),
    ("inspect closed.sif", "'closed.sif' may not be read", f"{OWNER} closed.sif`"),
    ("inspect --gpu closed.sif", "'closed.sif' may not be read", f"{OWNER} closed.sif`"),
    ("diff closed.sif x.sif", "'closed.sif' may not be read", f"{OWNER} closed.sif`"),
    ("report closed.sif", "'closed.sif' may not be read", f"{OWNER} closed.sif`"),
    ("build local ENV -n -o closed.sif", "'closed.sif' may not be read", "choose another path with -o"),
    ("build local ENV -n --base closed.sif", "cannot be used: it may not be read", OWNER),
    ("check local ENV --base closed.sif", "cannot be used: it may not be read", OWNER),
    ("run local shut/x.sif -- true", "'shut/x.sif' cannot be reached", "chmod o+x shut"),
    ("inspect shut/x.sif", "'shut/x.sif' cannot be reached", "chmod o+x shut"),
    ("inspect --gpu shut/x.sif", "'shut/x.sif' cannot be reached", "chmod o+x shut"),
    ("build local ENV -n --force -o shut/x.sif", "'shut/x.sif' cannot be reached", ANOTHER),
    ("build local ENV -n --force -o fixed/x.sif", "you may not write to", ANOTHER),
    (
        "build local ENV -n -o x.sif",
        f"belongs to uid {THEIRS}, and only its owner may replace it in the sticky",
        ANOTHER,
    ),
    ("build local ENV -n --force -o x.sif", f"belongs to uid {THEIRS}, and only its owner may replace it", ANOTHER),
)


@pytest.mark.parametrize(("line", "what", "fix"), LINES, ids=[line for line, _, _ in LINES])
def test_an_image_of_another_user_has_its_fix(theirs: Path, me: User, line: str, what: str, fix: str) -> None:
    env = me.home / "six.yml"
    env.write_text(RECIPE)
    env.chmod(0o644)
    os.chown(env, me.uid, me.uid)
    ended = me.recipe(*line.replace("ENV", str(env)).split(), cwd=theirs)
    assert ended.returncode == 2, ended.stderr
    error, _, rest = ended.stderr[ended.stderr.index("error[") :].partition("fix: ")
    assert what in error
    assert fix in rest
    assert sorted(path.name for path in theirs.rglob("*.plan")) == []
