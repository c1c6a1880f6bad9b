"""The two users are two: what the other tests of this folder rest on."""

from __future__ import annotations

from pathlib import Path

from user import User


def test_the_two_users_are_ordinary_and_see_only_their_own(me: User, other: User, shared: Path) -> None:
    ids = [user.run("id", "-u").stdout.strip() for user in (me, other)]
    assert ids == [str(me.uid), str(other.uid)]
    assert len(set(ids) | {"0"}) == 3
    assert other.run("touch", shared / "theirs").returncode == 0
    assert me.run("rm", "-f", shared / "theirs").returncode != 0
    assert me.run("ls", other.home).returncode != 0


def test_both_can_run_the_program(me: User, other: User) -> None:
    for user in (me, other):
        ended = user.recipe("--version")
        assert (ended.returncode, ended.stderr) == (0, "")
