"""The plan folder: whole or not at all, and nobody else's."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.rows import rows

from builder.execute import plan_folder as folder_module
from builder.execute.build_options import SignalInterrupt
from builder.execute.plan_folder import write_plan
from builder.layers.locks import make_mark
from builder.model.finding import ConfigError
from builder.model.plan import Copy, Plan, PlanFile, from_json
from builder.system import files as files_module
from builder.system.layout import LOCK_FILE, SOURCES_FILE

PlanOf = Callable[..., Plan]


def names(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.name not in (LOCK_FILE, SOURCES_FILE)
    )


def code(call: Callable[[], None]) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    assert all(finding.fix for finding in caught.value.findings)
    return caught.value.findings[0].code


def test_a_new_folder_holds_the_files_and_the_plan(plan_of: PlanOf, tmp_path: Path) -> None:
    files = (
        PlanFile(path="a.sh", text="#!/bin/bash\n\techo ä\r\n", executable=True),
        PlanFile(path="in/b.txt", text=""),
    )
    plan = plan_of({}, files=files)
    folder = tmp_path / "deep" / "kit"
    write_plan(plan, folder, recipe_folder=tmp_path)
    assert names(folder) == [".written.json", "a.sh", "in", "in/b.txt", "plan.json"]
    assert (folder / "a.sh").read_bytes() == "#!/bin/bash\n\techo ä\r\n".encode()
    assert (folder / "a.sh").stat().st_mode & stat.S_IXUSR
    assert not (folder / "in/b.txt").stat().st_mode & 0o111
    assert from_json((folder / "plan.json").read_text(encoding="utf-8")) == plan
    assert [path.name for path in folder.parent.iterdir()] == ["kit"]


def test_the_umask_holds(plan_of: PlanOf, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_plan(plan_of(), tmp_path / "kit", recipe_folder=tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "kit" / "build.sh").stat().st_mode) == 0o700


def test_copies_come_from_the_recipe_and_from_us(plan_of: PlanOf, tmp_path: Path) -> None:
    source = tmp_path / "recipe"
    (source / "src" / "sub").mkdir(parents=True)
    (source / "src" / "run.sh").write_text("x")
    (source / "src" / "run.sh").chmod(0o755)
    (source / "src" / "link").symlink_to("sub/../run.sh")
    (source / "one.txt").write_text("1")
    copies = (
        Copy(source="src", path="files/src"),
        Copy(source=str(source / "one.txt"), path="one.txt"),
        Copy(source="smoke", path="smoke", bundled=True),
    )
    write_plan(plan_of({}, copies=copies), tmp_path / "kit", recipe_folder=source)
    kit = tmp_path / "kit"
    assert (kit / "files/src/run.sh").stat().st_mode & stat.S_IXUSR
    assert (kit / "files/src/link").is_symlink()
    assert (kit / "files/src/sub").is_dir()
    assert (kit / "one.txt").read_text() == "1"
    assert (kit / "smoke/verdict.py").is_file()
    assert not list(kit.rglob("__pycache__"))


def test_a_copied_folder_leaves_out_the_plan_folder_in_it(plan_of: PlanOf, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a")
    plan = plan_of({}, copies=(Copy(source=".", path="src"),))
    for _ in range(2):
        write_plan(plan, tmp_path / "kit", recipe_folder=tmp_path)
    assert set(names(tmp_path / "kit")) == {".written.json", "plan.json", "src", "src/a.py"}
    assert not (tmp_path / "kit/src/kit").exists()


@rows(
    "path",
    [
        "/etc/x",
        "../x",
        "a/../../x",
        "a/./b",
        "",
        "a//b",
        "x\n",
        ".",
        "plan.json",
        "logs/x",
        "report.json",
        ".lock",
        "a/",
    ],
)
def test_paths_that_leave_the_folder_or_meet_ours_are_refused(plan_of: PlanOf, tmp_path: Path, path: str) -> None:
    for plan in (
        plan_of({}, files=(PlanFile(path=path, text=""),)),
        plan_of({}, copies=(Copy(source="s", path=path),)),
    ):
        assert code(lambda plan=plan: write_plan(plan, tmp_path / "kit", recipe_folder=tmp_path)) == "plan-path"
    assert not (tmp_path / "kit").exists()


def test_two_files_of_one_path_are_refused(plan_of: PlanOf, tmp_path: Path) -> None:
    for other in ("a", "a/b"):
        plan = plan_of({}, files=(PlanFile(path="a", text=""), PlanFile(path=other, text="")))
        assert code(lambda plan=plan: write_plan(plan, tmp_path / "kit", recipe_folder=tmp_path)) == "plan-path"


def test_a_missing_source_leaves_nothing(plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of({}, copies=(Copy(source="gone", path="x"),))
    assert code(lambda: write_plan(plan, tmp_path / "kit", recipe_folder=tmp_path)) == "copy-missing"
    assert list(tmp_path.iterdir()) == []


def test_links_out_of_a_copied_folder_and_devices_are_refused(plan_of: PlanOf, tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    plan = plan_of({}, copies=(Copy(source="src", path="x"),))
    for make in (
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.symlink_to("../../out"),
        os.mkfifo,
    ):
        make(source / "odd")
        assert code(lambda: write_plan(plan, tmp_path / "kit", recipe_folder=tmp_path)) == "copy-kind"
        (source / "odd").unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["src"]


def test_security_02_a_link_that_leads_out_behind_another_link(plan_of: PlanOf, tmp_path: Path) -> None:
    """Read as text each of them stays inside: where `..` leads behind a link, only the link says."""
    (tmp_path / "src" / "a" / "b").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    plan = plan_of({}, copies=(Copy(source="src", path="x"),))
    (tmp_path / "src" / "a" / "b" / "up").symlink_to("../..")
    write_plan(plan, tmp_path / "sound", recipe_folder=tmp_path)
    (tmp_path / "src" / "a" / "b" / "odd").symlink_to("up/../mine")
    assert code(lambda: write_plan(plan, tmp_path / "kit", recipe_folder=tmp_path)) == "copy-kind"
    assert not (tmp_path / "kit").exists()


def test_strangers_files_are_left_alone(plan_of: PlanOf, tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    kit.mkdir()
    write_plan(plan_of(), kit, recipe_folder=tmp_path)  # an empty folder is free
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("x")
    assert code(lambda: write_plan(plan_of(), other, recipe_folder=tmp_path)) == "folder-taken"
    assert names(other) == ["thesis.tex"]
    file = tmp_path / "file"
    file.write_text("x")
    assert code(lambda: write_plan(plan_of(), file, recipe_folder=tmp_path)) == "folder-taken"
    assert file.read_text() == "x"


def test_an_update_of_a_plan_folder_keeps_what_builds_left(plan_of: PlanOf, tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    old = (
        PlanFile(path="1-build.sh", text="old"),
        PlanFile(path="sub/2-convert.sh", text="old"),
        PlanFile(path="d/x", text=""),
    )
    write_plan(plan_of({}, files=old), kit, recipe_folder=tmp_path)
    (kit / "logs").mkdir()
    (kit / "logs/build.log").write_text("log")
    (kit / "report.json").write_text("{}")
    (kit / "image.sif").write_text("image")
    (kit / "notes.txt").write_text("mine")
    new = (PlanFile(path="1-build.sh", text="new", executable=True), PlanFile(path="d", text="now a file"))
    write_plan(plan_of({}, files=new), kit, recipe_folder=tmp_path)
    assert (kit / "1-build.sh").read_text() == "new"
    assert (kit / "1-build.sh").stat().st_mode & stat.S_IXUSR
    assert (kit / "d").read_text() == "now a file"
    assert not (kit / "sub").exists()
    for kept in ("logs/build.log", "report.json", "image.sif", "notes.txt"):
        assert (kit / kept).exists()
    assert len(from_json((kit / "plan.json").read_text()).files) == 2


def test_a_copied_folder_is_replaced_as_a_whole(plan_of: PlanOf, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a").write_text("a")
    plan = plan_of({}, copies=(Copy(source="src", path="src"),))
    write_plan(plan, tmp_path / "kit", recipe_folder=tmp_path)
    (tmp_path / "src/a").rename(tmp_path / "src/b")
    write_plan(plan, tmp_path / "kit", recipe_folder=tmp_path)
    assert [path.name for path in (tmp_path / "kit/src").iterdir()] == ["b"]


def test_names_that_are_not_utf8_are_noted_as_well(plan_of: PlanOf, tmp_path: Path) -> None:
    source, folder = tmp_path / "src", tmp_path / "out"
    source.mkdir()
    for name in (b"a\xff", b"a\xfe"):
        (source / os.fsdecode(name)).write_text("first\n")
    (source / "link").symlink_to(os.fsdecode(b"a\xff"))
    plan = plan_of(copies=(Copy(source="src", path="src"),))
    write_plan(plan, folder, recipe_folder=tmp_path)
    (source / "b").write_text("added\n")
    write_plan(plan, folder, recipe_folder=tmp_path)
    assert sorted(os.fsencode(path.name) for path in (folder / "src").iterdir()) == [b"a\xfe", b"a\xff", b"b", b"link"]
    (folder / "src" / os.fsdecode(b"a\xff")).write_text("by hand\n")
    with pytest.raises(ConfigError) as caught:
        write_plan(plan, folder, recipe_folder=tmp_path)
    assert [one.code for one in caught.value.findings] == ["folder-edited"]
    assert "' was edited" in caught.value.findings[0].message


def test_a_plan_of_another_version_is_replaced_with_force(plan_of: PlanOf, tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    kit.mkdir()
    (kit / "plan.json").write_text('{"schema": 99, "steps": [], "files": [{"path": "../x"}]}')
    (kit / "old.sh").write_text("x")
    assert code(lambda: write_plan(plan_of(), kit, recipe_folder=tmp_path)) == "folder-edited"
    write_plan(plan_of(), kit, recipe_folder=tmp_path, force=True)
    assert {"old.sh", "build.sh", "plan.json"} <= set(names(kit))


FOREIGN = {"empty": "{}", "a list": "[1]", "text": "my plan", "other keys": '{"schema": 1, "files": []}'}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("force", [False, True])
def test_a_foreign_plan_json_makes_no_folder_ours(plan_of: PlanOf, tmp_path: Path, text: str, force: bool) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "plan.json").write_text(text)
    (mine / "build.sh").write_text("mine")
    assert code(lambda: write_plan(plan_of(), mine, recipe_folder=tmp_path, force=force)) == "folder-taken"
    assert {path.name: path.read_text() for path in mine.iterdir()} == {"plan.json": text, "build.sh": "mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_without_its_record_a_folder_keeps_edits(plan_of: PlanOf, tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    old = (PlanFile(path="a.sh", text="a"), PlanFile(path="gone.sh", text="b"))
    write_plan(plan_of({}, files=old), kit, recipe_folder=tmp_path)
    (kit / ".written.json").unlink()
    new = plan_of({}, files=(PlanFile(path="a.sh", text="new"),))
    for name in ("a.sh", "gone.sh"):
        before = (kit / name).read_text()
        (kit / name).write_text("edited")
        assert code(lambda: write_plan(new, kit, recipe_folder=tmp_path)) == "folder-edited"
        assert (kit / name).read_text() == "edited"
        (kit / name).write_text(before)
    write_plan(new, kit, recipe_folder=tmp_path)  # every file is what the plan there says
    assert names(kit) == [".old.json", ".written.json", "a.sh", "plan.json"]


def test_without_its_record_copies_ask_for_force(plan_of: PlanOf, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a").write_text("a")
    plan = plan_of({}, copies=(Copy(source="src", path="src"),))
    write_plan(plan, tmp_path / "kit", recipe_folder=tmp_path)
    (tmp_path / "kit/.written.json").unlink()
    assert code(lambda: write_plan(plan, tmp_path / "kit", recipe_folder=tmp_path)) == "folder-edited"
    write_plan(plan, tmp_path / "kit", recipe_folder=tmp_path, force=True)
    write_plan(plan, tmp_path / "kit", recipe_folder=tmp_path)


def test_a_folder_that_is_a_link_to_nothing_is_refused(plan_of: PlanOf, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert code(lambda: write_plan(plan_of(), tmp_path / "link", recipe_folder=tmp_path)) == "folder-taken"
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_link_inside_the_folder_does_not_lead_out_of_it(plan_of: PlanOf, tmp_path: Path) -> None:
    kit, outside = tmp_path / "kit", tmp_path / "outside"
    write_plan(plan_of({}), kit, recipe_folder=tmp_path)
    outside.mkdir()
    (kit / "sub").symlink_to(outside)
    plan = plan_of({}, files=(PlanFile(path="sub/x", text=""),))
    assert code(lambda: write_plan(plan, kit, recipe_folder=tmp_path)) == "folder-link"
    assert list(outside.iterdir()) == []


def test_a_folder_in_use_is_not_changed(plan_of: PlanOf, tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    write_plan(plan_of(), kit, recipe_folder=tmp_path)
    with (kit / LOCK_FILE).open("w") as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        assert code(lambda: write_plan(plan_of({}), kit, recipe_folder=tmp_path)) == "build-running"
    assert (kit / "build.sh").exists()


def test_what_a_killed_write_left_is_removed_when_it_is_old(plan_of: PlanOf, tmp_path: Path) -> None:
    old, fresh = tmp_path / ".kit.recipe-1", tmp_path / ".kit.recipe-2"
    for path in (old, fresh):
        path.mkdir()
    long_ago = time.time() - 2 * folder_module.OLD_STAGING
    os.utime(old, (long_ago, long_ago))
    write_plan(plan_of(), tmp_path / "kit", recipe_folder=tmp_path)
    assert not old.exists()
    assert fresh.exists()


def test_a_place_that_cannot_be_written_is_a_finding(plan_of: PlanOf, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert code(lambda: write_plan(plan_of(), tmp_path / "file" / "kit", recipe_folder=tmp_path)) == "folder-unwritable"


@pytest.mark.parametrize("source", ["data", "data/key", "./data/../data/key"])
def test_security_02_a_source_through_a_link_out_of_the_recipes_folder(
    tmp_path: Path, plan_of: Callable[..., Plan], source: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "key").write_text("secret")
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "data").symlink_to("../mine")
    with pytest.raises(ConfigError, match="not in the recipe's folder"):
        write_plan(plan_of(copies=(Copy(source=source, path="x"),)), tmp_path / "kit", recipe_folder=recipe)
    assert not (tmp_path / "kit").exists()


def test_security_12_a_plan_is_not_written_through_links_in_its_folder(
    tmp_path: Path, plan_of: Callable[..., Plan]
) -> None:
    mine, kit = tmp_path / "mine", tmp_path / "kit"
    mine.mkdir()
    (mine / "a.txt").write_text("years of work")
    write_plan(plan_of(files=(PlanFile(path="sub/a.txt", text="1"),)), kit, recipe_folder=tmp_path)
    (kit / "sub" / "a.txt").unlink()
    (kit / "sub").rmdir()
    (kit / "sub").symlink_to(mine)
    with pytest.raises(ConfigError, match="a link that leads out"):
        write_plan(plan_of(files=(PlanFile(path="sub/a.txt", text="2"),)), kit, recipe_folder=tmp_path)
    assert (mine / "a.txt").read_text() == "years of work"


def test_fault_08_what_a_killed_run_left_goes_with_the_next_one(plan_of: PlanOf, tmp_path: Path) -> None:
    mark = make_mark().split(".", 4)
    dead = tmp_path / f".kit.recipe-{'.'.join([mark[0], '4194305', *mark[2:]])}"  # a number that no process has
    live = tmp_path / f".kit.recipe-{'.'.join(mark)}"
    away = tmp_path / f".kit.recipe-{'.'.join([*mark[:4], 'another'])}"
    for folder in (dead, live, away):
        folder.mkdir()
    write_plan(plan_of({}), tmp_path / "kit", recipe_folder=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {live.name, away.name, "kit"}


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_fault_08_a_signal_while_a_plan_is_written_leaves_nothing(
    plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, exit_code: int
) -> None:
    def half(_plan: Plan, staging: Path, **_: object) -> None:
        (staging / "half").touch()
        signal.raise_signal(number)

    monkeypatch.setattr(folder_module, "_fill", half)
    with pytest.raises(SignalInterrupt) as caught:
        write_plan(plan_of({}), tmp_path / "kit", recipe_folder=tmp_path)
    assert caught.value.exit_code == exit_code
    assert list(tmp_path.iterdir()) == []


def test_fault_08_a_second_signal_lets_the_cleaning_end(
    plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = files_module.remove_tree

    def half(_plan: Plan, staging: Path, **_: object) -> None:
        (staging / "half").touch()
        signal.raise_signal(signal.SIGTERM)

    def remove_under_a_signal(path: Path) -> bool:
        if path.exists():  # the folder that is being written
            signal.raise_signal(signal.SIGINT)
        return remove(path)

    monkeypatch.setattr(folder_module, "_fill", half)
    monkeypatch.setattr(files_module, "remove_tree", remove_under_a_signal)
    with pytest.raises(SignalInterrupt) as caught:
        write_plan(plan_of({}), tmp_path / "kit", recipe_folder=tmp_path)
    assert caught.value.exit_code == 143
    assert list(tmp_path.iterdir()) == []
