"""A file of settings that another user could have written is not used, and it is said."""

from __future__ import annotations

import os
from pathlib import Path

from user import User


def place(folder: Path, *, uid: int, text: str) -> Path:
    """A file of settings below a folder, both of a user's."""
    path = folder / "recipe" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    for item in (path, path.parent):
        os.chown(item, uid, uid)
    return path


def test_security_settings_of_another_user_are_not_used(shared: Path, me: User, other: User) -> None:
    theirs = place(shared / "config", uid=other.uid, text="cache: /stolen\n")
    done = me.recipe("config", XDG_CONFIG_HOME=str(shared / "config"))
    assert done.returncode == 0, done.stderr
    assert "/stolen" not in done.stdout
    assert f"user file:    not used  {theirs}" in done.stdout
    said = (
        f"warning[config-foreign]: the config file '{theirs}' belongs to another user (uid {other.uid}): it is not used"
    )
    assert said in done.stderr
    os.chown(theirs, me.uid, me.uid)  # its folder is still theirs: they can put another file there
    done = me.recipe("sites", XDG_CONFIG_HOME=str(shared / "config"))
    assert f"the folder of the config file '{theirs.parent}' belongs to another user" in done.stderr
    done = me.recipe("config", XDG_CONFIG_DIRS=str(shared / "config"))
    assert "/stolen" in done.stdout, "the folders of the system may be of a centre's staff"
    theirs.chmod(0o646)
    done = me.recipe("config", XDG_CONFIG_DIRS=str(shared / "config"))
    assert "/stolen" not in done.stdout
    assert "may be written by every user of this machine: it is not used" in done.stderr


def test_a_file_that_may_not_be_read_is_an_error_with_its_fix(me: User) -> None:
    path = place(me.home / ".config", uid=me.uid, text="cache: /x\n")
    os.chown(me.home / ".config", me.uid, me.uid)
    path.chmod(0)
    done = me.recipe("sites")
    assert done.returncode == 2
    assert f"error[file-unreadable]: the config file '{path}' cannot be read: permission denied" in done.stderr
    assert "fix: `chmod u+r" in done.stderr


def test_a_home_that_may_not_be_entered_has_no_settings(me: User, other: User) -> None:
    place(other.home / ".config", uid=other.uid, text="cache: /x\n")
    done = me.recipe("config", HOME=str(other.home), RECIPE_CACHE_DIR="/tmp")
    assert "Traceback" not in done.stderr
    assert "/x" not in done.stdout
