"""File work below foreign trees: whatever lies in them, nothing beside them is read, written, changed or removed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.rows import rows

from builder.layers import copies
from builder.sif import removal, tree
from builder.sif.tree import TreeError


@pytest.fixture(name="mine")
def own_folder(tmp_path: Path) -> Path:
    """What a user keeps beside the tree."""
    mine = tmp_path / "mine"
    (mine / "docs").mkdir(parents=True)
    (mine / "docs" / "thesis").write_text("years of work")
    (mine / "shared").mkdir()
    (mine / "shared").chmod(0o2775)
    return mine


def snapshot(folder: Path) -> list[tuple[str, int, str]]:
    paths = sorted([folder, *folder.rglob("*")])
    return [(str(one), one.lstat().st_mode, one.read_text() if one.is_file() else "") for one in paths]


@pytest.fixture(name="top")
def foreign_tree(tmp_path: Path, mine: Path) -> Path:
    """A tree with every kind of link."""
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "file").write_text("content")
    (top / "absolute").symlink_to(mine)
    (top / "relative").symlink_to("../mine")
    (top / "sub" / "up").symlink_to("../../mine/docs")
    (top / "to-file").symlink_to(mine / "docs" / "thesis")
    (top / "loop").symlink_to("loop")
    return top


HOSTILE = ("absolute/docs", "relative/docs", "sub/up", "absolute", "../mine", "sub/../../mine", "loop/x", "to-file/x")
ACTIONS: dict[str, Callable[[Path, str], object]] = {
    "write": lambda top, path: tree.write(top, f"{path}/thesis", b"other"),
    "link": lambda top, path: tree.link(top, f"{path}/thesis", "/etc/passwd"),
    "read": lambda top, path: tree.read(top, f"{path}/thesis", limit=100),
    "copy": lambda top, path: copies.copy(top / "sub" / "file", top, f"{path}/thesis"),
    "copy a folder": lambda top, path: copies.copy(top / "sub", top, f"{path}/thesis"),
    "move": lambda top, path: tree.move(top, "sub/file", top, f"{path}/thesis"),
    "take": lambda top, path: tree.move(top, f"{path}/thesis", top, "taken"),
}


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.parametrize("action", ACTIONS)
def test_security_01_no_action_follows_a_link(top: Path, mine: Path, action: str, path: str) -> None:
    before = snapshot(mine)
    with pytest.raises(TreeError):
        ACTIONS[action](top, path)
    assert snapshot(mine) == before


@pytest.mark.parametrize("path", HOSTILE)
def test_security_01_removing_and_walking_follow_no_link(top: Path, mine: Path, path: str) -> None:
    before = snapshot(mine)
    if ".." in path:
        with pytest.raises(TreeError):
            list(tree.walk(top, path))
    else:
        assert tree.stat_path(top, f"{path}/thesis") is None
    assert removal.remove(Path(path, "thesis"), below=top)
    assert snapshot(mine) == before
    assert removal.remove(top)
    assert not top.exists()
    assert snapshot(mine) == before


def test_security_01_a_walk_names_links_and_goes_into_none(top: Path) -> None:
    assert sorted(entry.path for entry in tree.walk(top)) == [
        "absolute", "loop", "relative", "sub", "sub/file", "sub/up", "to-file"
    ]  # fmt: skip


def test_security_01_the_top_itself_may_be_no_link(top: Path, mine: Path, tmp_path: Path) -> None:
    (tmp_path / "upper").symlink_to(mine)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        list(tree.walk(tmp_path / "upper"))
    assert list(tree.walk(tmp_path, "upper")) == []
    assert removal.remove(tmp_path / "upper")
    assert (mine / "docs" / "thesis").exists()
    assert top.exists()


@pytest.mark.parametrize("name", ["absolute", "relative", "to-file", "sub/up"])
def test_security_17_a_link_in_the_place_of_a_closed_folder_is_not_opened_up(top: Path, mine: Path, name: str) -> None:
    """It may have been put there since the folder was refused."""
    (mine / "docs" / "thesis").chmod(0o600)
    (mine / "docs").chmod(0o500)
    before = snapshot(mine)
    with (
        tree.open_folder_below(top, str(Path(name).parent)) as at,
        pytest.raises(OSError, match=r"Not a directory|symbolic links"),
    ):
        tree._add_rights(Path(name).name, at, stat.S_IRWXU)
    assert snapshot(mine) == before
    (mine / "docs").chmod(0o700)


@pytest.mark.parametrize("name", ["absolute", "relative", "to-file"])
def test_security_01_a_folder_is_not_merged_into_what_a_link_leads_to(
    top: Path, mine: Path, tmp_path: Path, name: str
) -> None:
    before = snapshot(mine)
    (tmp_path / "more" / name / "docs").mkdir(parents=True)
    (tmp_path / "more" / name / "docs" / "thesis").write_text("other")
    with pytest.raises(TreeError):
        copies.merge(tmp_path / "more", top)
    assert snapshot(mine) == before


def test_security_17_only_folders_of_the_tree_get_other_modes(top: Path, mine: Path) -> None:
    before = snapshot(mine)
    copies.set_modes(top, lambda path: 0o700 if path else 0o711)
    assert stat.S_IMODE((top / "sub").stat().st_mode) == 0o700
    assert stat.S_IMODE(top.stat().st_mode) == 0o711
    assert snapshot(mine) == before


def test_security_17_folders_without_rights_go_links_change_nothing(top: Path, mine: Path) -> None:
    before = snapshot(mine)
    shut = top / "sub" / "shut"
    shut.mkdir()
    (shut / "file").touch()
    (shut / "up").symlink_to(mine)
    shut.chmod(0)
    (top / "sub").chmod(0o500)
    assert removal.remove(top)
    assert snapshot(mine) == before


@pytest.mark.property
def test_a_tree_deeper_than_any_path_may_be_long(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    name = "d" * 200
    for _ in range(300):  # 60,000 characters, and more folders than descriptors are needed
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert sum(1 for _ in tree.walk(tmp_path)) == 300
    copies.copy(tmp_path / name, tmp_path, "copied")
    assert sum(1 for _ in tree.walk(tmp_path)) == 600
    assert removal.remove(tmp_path / name)
    assert removal.remove(tmp_path / "copied")
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_no_text_pipes_and_files_of_a_cache(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    odd = os.fsdecode(b"caf\xe9\n")
    (top / odd).mkdir()
    os.mkfifo(top / odd / "pipe")
    kept = tmp_path / "kept"
    kept.write_text("kept")
    os.link(kept, top / "same")
    tree.write(top, "same", b"new")
    assert kept.read_text() == "kept"
    with pytest.raises(TreeError):
        tree.read(top, f"{odd}/pipe", limit=1)
    with pytest.raises(TreeError, match="neither a file, a folder nor a link"):
        copies.copy(top, tmp_path, "other")
    assert removal.remove(top)


def test_a_folder_replaced_by_a_link_in_a_walk_is_not_entered(top: Path, mine: Path) -> None:
    before, found = snapshot(mine), []

    def swap() -> None:
        for entry in tree.walk(top):
            found.append(entry.path)
            if entry.path == "sub":
                (top / "sub").rename(top.parent / "away")
                (top / "sub").symlink_to(mine)

    with pytest.raises(TreeError):
        swap()
    assert "sub/docs" not in found
    assert snapshot(mine) == before


def test_a_folder_that_is_moved_away_during_a_walk_ends_it(tmp_path: Path) -> None:
    (tmp_path / "top" / "a" / "b").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    names = []

    def move() -> None:
        for entry in tree.walk(tmp_path / "top"):
            names.append(entry.name)
            if entry.name == "b":
                (tmp_path / "top" / "a").rename(tmp_path / "elsewhere" / "a")

    with pytest.raises(TreeError, match="moved"):
        move()
    assert names == ["a", "b"]


@rows(
    ("path", "target", "out"),
    [
        ("a", "b", False),
        ("a/b", "../c", False),
        ("a/b", "../../c", True),
        ("a", "..", True),
        ("a/b/c", "../../d/e", False),
        ("a", "/etc", True),
        ("p/q/x", "y/../../../etc", True),  # y may lead to a place with fewer folders above it
        ("a/b", "./.././c", False),
        ("a/..b", "..c/..d", False),
    ],
)
def test_security_02_links_that_lead_out(path: str, target: str, out: bool) -> None:
    assert tree.can_leave_tree(path, target) is out


def test_security_02_links_are_copied_last_and_as_they_are(top: Path, mine: Path, tmp_path: Path) -> None:
    before = snapshot(mine)
    (top / "sub").chmod(0o555)
    try:
        copies.copy(top, tmp_path, "new/place")
    finally:
        (top / "sub").chmod(0o755)
    place = tmp_path / "new" / "place"
    assert (place / "sub" / "up").readlink() == Path("../../mine/docs")
    assert (place / "sub" / "file").read_text() == "content"
    assert stat.S_IMODE((place / "sub").stat().st_mode) == 0o555
    assert snapshot(mine) == before
    assert removal.remove(place)
