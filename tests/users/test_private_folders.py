"""Caches and temporary folders that another user made are not used, in Python and in the generated scripts."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest
from user import PROGRAM, SHARED_GROUP, User

ENGINE = PROGRAM / "builder" / "data" / "templates" / "engine.sh"
RECIPE = "name: t\ndependencies:\n  - pip\n"
# A cache comes with the first build: looking at one makes none.
MAKE = "import os; from builder.execute.cache_maintenance import open_cache; open_cache(os.environ)"
CALL = "set -eu; . {engine}; runtime=apptainer; {call}; echo work=${{work:-}} place=${{place:-}} cache=${{cache:-}}"


def owner(path: Path) -> int:
    return path.stat().st_uid


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def bash(user: User, call: str, **variables: str) -> tuple[int, str]:
    ended = user.run("bash", "-c", CALL.format(engine=ENGINE, call=call), **variables)
    return ended.returncode, ended.stdout + ended.stderr


def test_security_14_a_cache_of_another_user_is_refused(me: User, other: User, shared: Path) -> None:
    cache = shared / "cache"
    assert other.run(sys.executable, "-c", MAKE, RECIPE_CACHE_DIR=str(cache)).returncode == 0
    other.run("chmod", "-R", "a+rwX", cache)
    for command in (["cache", "ls"], ["cache", "check"], ["cache", "prune"]):
        ended = me.recipe(*command, RECIPE_CACHE_DIR=str(cache))
        assert (ended.returncode, ended.stdout) == (4, "")
        assert f"the cache folder '{cache}' belongs to uid {other.uid}" in ended.stderr
        assert "fix: set RECIPE_CACHE_DIR" in ended.stderr
    assert me.recipe("cache", "ls", RECIPE_CACHE_DIR=str(shared / "mine")).returncode == 0
    code, text = bash(me, "work=/nowhere; own_cache", RECIPE_CACHE_DIR=str(cache))
    assert code == 1
    assert f"(uid {other.uid})" in text
    assert "RECIPE_CACHE_DIR" in text


@pytest.mark.parametrize("part", ["uv", "conda", "layers-1", "layers-1/layers"])
def test_security_14_a_part_of_a_cache_of_another_user_is_refused(
    me: User, other: User, shared: Path, part: str
) -> None:
    cache = shared / "cache"
    me.run(sys.executable, "-c", MAKE, RECIPE_CACHE_DIR=str(cache))
    os.chown(cache / part, other.uid, other.uid)
    ended = me.recipe("cache", "ls", RECIPE_CACHE_DIR=str(cache))
    assert ended.returncode == 4
    assert f"'{cache / part}' belongs to uid {other.uid}" in ended.stderr


def test_security_14_a_cache_that_the_group_can_write_is_refused(me: User, shared: Path) -> None:
    cache = shared / "cache"
    me.run(sys.executable, "-c", MAKE, RECIPE_CACHE_DIR=str(cache))
    me.run("chgrp", str(SHARED_GROUP), cache, group=SHARED_GROUP)
    me.run("chmod", "770", cache)
    ended = me.recipe("cache", "ls", RECIPE_CACHE_DIR=str(cache))
    assert ended.returncode == 4
    assert f"chmod -R go-w {cache}" in ended.stderr
    code, text = bash(me, "work=/nowhere; own_cache", RECIPE_CACHE_DIR=str(cache))
    assert (code, f"chmod -R go-w {cache}" in text) == (1, True)
    me.run("chmod", "-R", "go-w", cache)
    assert me.recipe("cache", "ls", RECIPE_CACHE_DIR=str(cache)).returncode == 0
    assert bash(me, "work=/nowhere; own_cache", RECIPE_CACHE_DIR=str(cache))[0] == 0


def test_a_cache_in_the_folder_of_a_project_is_used(me: User, shared: Path) -> None:
    """/scratch/project_1: root made it, its group writes there."""
    project = shared / "project"
    project.mkdir()
    os.chown(project, 0, SHARED_GROUP)
    project.chmod(0o2770)
    cache = project / "me" / "cache"
    ended = me.run(sys.executable, "-c", MAKE, group=SHARED_GROUP, RECIPE_CACHE_DIR=str(cache))
    assert (ended.returncode, ended.stdout) == (0, "")
    assert int(mode(cache), 8) & 0o777 == 0o700
    ended = me.run(
        "bash", "-c", CALL.format(engine=ENGINE, call="own_cache"), group=SHARED_GROUP, RECIPE_CACHE_DIR=str(cache)
    )
    assert f"cache={cache}\n" in ended.stdout


def test_security_14_without_a_home_nothing_goes_to_tmp(me: User) -> None:
    ended = me.run("env", "-u", "HOME", "recipe", "cache", "ls")
    assert (ended.returncode, ended.stdout) == (4, "")
    assert "HOME is not set" in ended.stderr
    ended = me.run("env", "-u", "HOME", "bash", "-c", CALL.format(engine=ENGINE, call="work=/private; own_cache"))
    assert "cache=/private\n" in ended.stdout


@pytest.mark.parametrize("kind", ["folder", "open", "link", "link above", "open above", "above"])
def test_security_11_a_temporary_place_of_another_user_is_refused(
    me: User, other: User, shared: Path, kind: str
) -> None:
    place = shared / "user"
    mine = me.home / "mine"
    me.run("mkdir", "-m", "700", mine)
    if kind in ("folder", "open"):
        other.run("mkdir", "-m", "777", place)
        if kind == "open":
            other.run("chmod", "1777", place)
    elif kind == "link":
        other.run("ln", "-s", mine, place)
    elif kind == "link above":
        other.run("ln", "-s", me.home, place)
        place = place / "mine"
    elif kind == "open above":
        (shared / "loose").mkdir()
        (shared / "loose").chmod(0o777)
        place = shared / "loose" / "mine"
        me.run("mkdir", "-m", "700", place)
    else:
        other.run("mkdir", "-m", "777", place)
        place = place / "mine"
        me.run("mkdir", "-m", "700", place)
    (me.home / "env.yml").write_text(RECIPE)
    culprit = "" if kind == "open above" else f"uid {other.uid}"
    code, text = bash(me, f"temporary_folder {place} ''")
    assert (code, culprit in text, "RECIPE_TMPDIR" in text) == (1, True, True), text
    code, text = bash(me, "temporary_folder '' ''", RECIPE_TMPDIR=str(place))
    assert (code, culprit in text) == (1, True), text
    code, text = bash(me, f"temporary_folder '' {place}")
    assert (code, culprit in text, "APPTAINER_CACHEDIR" in text) == (1, kind != "none", True), text
    code, text = bash(me, f"private_folder {place} 'node-local folder' 'submit the job again'")
    assert (code, culprit in text, "submit the job again" in text) == (1, True, True), text
    program = (
        "import sys; from pathlib import Path; from builder.system.scratch import make_scratch_folder\n"
        "from builder.model.finding import ToolError\n"
        "try:\n    make_scratch_folder(Path('.'), parent=Path(sys.argv[1])).__enter__()\n"
        "except ToolError as error: print(error.exit_code, error.findings[0])"
    )
    ended = me.run("python", "-c", program, place)
    assert ended.stdout.startswith("4 "), ended.stderr
    assert culprit in ended.stdout
    assert "--tmpdir" in ended.stdout
    assert list(mine.iterdir()) == []


def test_security_11_missing_folders_are_private_and_own_ones_used(me: User, shared: Path) -> None:
    for _ in range(2):
        code, text = bash(me, f"temporary_folder {shared}/local/me/tmp {shared}/local/me/cache")
        assert (code, f"work={shared}/local/me/tmp/recipe-" in text) == (0, True), text
        for path in ("local", "local/me", "local/me/tmp", "local/me/cache"):
            assert (owner(shared / path), mode(shared / path)) == (me.uid, "0o700")
    assert bash(me, "temporary_folder '' ''", RECIPE_TMPDIR=str(shared))[0] == 0  # sticky and root's, as /tmp


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_security_11_ranks_of_one_user_make_a_folder_at_once(me: User, shared: Path, umask: int) -> None:
    place = shared / "a" / "b" / "miopen-cache-1"
    rank = f"(set -eu; . {ENGINE}; private_folder {place} 'node-local folder' 'submit the job again')"
    ended = me.run(
        "bash",
        "-c",
        f"for i in $(seq 24); do {rank} & p+=($!); done; for i in ${{p[@]}}; do wait $i || exit 9; done",
        umask=umask,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert {mode(path) for path in (place, place.parent, place.parent.parent)} == {"0o700"}
