"""Folders that somebody else has named or filled: paths are checked after joining, links are seen, one module works."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

import pytest
from support.rows import rows
from support.small_images import BASE

from builder.cli.main import run
from builder.execute.folder_lock import lock_folder
from builder.layers import wheel_files
from builder.layers.base_facts import BaseFacts
from builder.layers.container_steps import clean_upper, find_whiteouts
from builder.layers.metadata import write_own_files
from builder.layers.spec import Spec
from builder.model.finding import ConfigError
from builder.sif.errors import LayeringError
from builder.sif.pack import escape_path
from builder.system.files import name_draft, write_atomic
from builder.system.step_output import StepLog


def plan_in(folder: Path, base: str, *words: str) -> tuple[int, str]:
    folder.mkdir(parents=True)
    (folder / "b.sif").write_bytes(BASE)  # it is opened, and its file system is left to engines
    (folder / "e.yml").write_text(f"name: own\ndependencies: []\ncontainer: {{base: {base}}}\n")
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(["plan", "local", str(folder / "e.yml"), "-o", str(folder / "p"), *words])
    return code, said.getvalue()


@rows("name", ["a\n\n%post\n    touch CANARY\n", "a\x1bb", "{{ x }}", "a b", "a'b", "ends ", "ü"])
def test_security_16_folders_that_are_more_than_a_path(tmp_path: Path, name: str) -> None:
    code, said = plan_in(tmp_path / name, "./b.sif", "--backend", "apptainer")
    assert code == 2
    assert "container.base" in said
    assert "fix: move the recipe" in said
    assert "\x1b" not in said
    assert "%post\n" not in said
    assert not (tmp_path / name / "p").exists()


@rows("name", ["a\n\n%post\n    touch CANARY\n", "a\x1bb", "{{ x }}", "a\tb", "a\u2028b"])
def test_security_16_not_every_folder_serves_where_a_path_is_quoted(tmp_path: Path, name: str) -> None:
    code, said = plan_in(tmp_path / name, "./b.sif", "--backend", "layers")
    assert (code, "fix: move the recipe" in said) == (2, True)
    assert "build with --backend layers" not in said
    assert not (tmp_path / name / "p").exists()


@rows("name", ["plain", "two words", "Überraschung", "it's"])
def test_security_16_ordinary_folders_serve_where_a_path_is_quoted(tmp_path: Path, name: str) -> None:
    code, said = plan_in(tmp_path / name, "./b.sif", "--backend", "layers")
    assert (code, "error" in said) == (0, False), said


@pytest.mark.property
@pytest.mark.parametrize(
    "name", ["a\n\n%post\n    touch CANARY\n", "{{ x }}CANARY", "a\rRUN touch CANARY", "'; touch CANARY; '"]
)
@pytest.mark.parametrize("backend", ["apptainer", "layers", "docker"])
def test_security_16_the_name_of_a_recipe_adds_nothing(tmp_path: Path, name: str, backend: str) -> None:
    """A recipe without a name of its own is called after its file."""
    env = tmp_path / f"{name}.yml"
    env.write_text("dependencies: [{pip: [six]}]\n")
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        words = ["plan", "local", str(env), "--backend", backend, "--base", "docker://debian:12"]
        assert run([*words, "-o", str(tmp_path / "p")]) == 0
    assert "\r" not in said.getvalue()
    texts = {path.name: path.read_text() for path in (tmp_path / "p").rglob("*") if path.is_file()}
    read = {path: text for path, text in texts.items() if path.endswith((".sh", ".def", "Dockerfile", "labels.txt"))}
    assert len(read) > 3
    assert [path for path, text in read.items() if re.search(r"[^\w-]CANARY|CANARY[^\w'\s-]|\r", text)] == []
    assert [text.count("%post") for path, text in read.items() if path.endswith(".def")] in ([], [1])


@rows("links", [("var/log",), ("root",), ("var",), ("opt",), ("etc",), ("tmp",), ("opt/recipe",)])
def test_security_01_tidying_follows_no_link(tmp_path: Path, links: tuple[str, ...]) -> None:
    mine = tmp_path / "mine"
    for name in ("log", "tmp", ".cache", "recipe/build", "lib/apt/lists", "build", "docs"):
        (mine / name).mkdir(parents=True)
        (mine / name / "file").write_text("mine")
    before = sorted(mine.rglob("*"))
    upper = tmp_path / "overlay" / "upper"
    for link in links:
        (upper / link).parent.mkdir(parents=True)
        (upper / link).symlink_to(mine)
    (upper / "usr").mkdir()
    clean_upper(tmp_path, "overlay/upper")
    assert find_whiteouts(upper, tmp_path / "none") == []
    assert sorted(mine.rglob("*")) == before
    (tmp_path / "overlay" / "moved").symlink_to(mine)
    with pytest.raises(OSError, match="link"):
        clean_upper(tmp_path, "overlay/moved")
    assert sorted(mine.rglob("*")) == before


def test_security_02_a_link_that_a_base_moves_elsewhere_is_refused(tmp_path: Path) -> None:
    spec, top = tmp_path / "image", tmp_path / "top"
    (spec / "root" / "opt" / "a" / "b").mkdir(parents=True)
    (spec / "root" / "opt" / "a" / "b" / "y").symlink_to("../../x")
    top.mkdir()
    made = Spec.__new__(Spec)
    object.__setattr__(made, "folder", spec)
    write_own_files(top, spec=made, facts=BaseFacts(sha256="", machine="", links={"/opt": "/usr/opt"}))
    assert (top / "usr" / "opt" / "a" / "b" / "y").is_symlink()
    with pytest.raises(LayeringError, match="leads elsewhere"):
        write_own_files(top, spec=made, facts=BaseFacts(sha256="", machine="", links={"/opt/a/b": "/q"}))


@pytest.mark.parametrize("links", [{}, {"/opt/data": "/srv/x"}])
def test_a_file_takes_no_folders_place_in_the_image(tmp_path: Path, links: dict[str, str]) -> None:
    spec, top = tmp_path / "image", tmp_path / "top"
    (spec / "root" / "opt").mkdir(parents=True)
    (spec / "root" / "opt" / "data").touch()
    top.mkdir()
    made = Spec.__new__(Spec)
    object.__setattr__(made, "folder", spec)
    folders = {"/opt": 0o755, links.get("/opt/data", "/opt/data"): 0o755}
    with pytest.raises(LayeringError, match="is a folder of the image"):
        write_own_files(top, spec=made, facts=BaseFacts(sha256="", machine="", links=links, folders=folders))
    write_own_files(top, spec=made, facts=BaseFacts(sha256="", machine="", folders={"/opt": 0o755}))


def test_security_02_names_are_no_words_of_the_packer() -> None:
    assert escape_path('x" f 444 0 0 touch y') == 'x\\"\\ f\\ 444\\ 0\\ 0\\ touch\\ y'
    with pytest.raises(LayeringError, match="line break"):
        escape_path("a\nb f 444 0 0 id")


def test_security_01_a_wheels_list_names_no_file_outside(tmp_path: Path) -> None:
    site = tmp_path / "top" / "lib" / "site-packages"
    (site / "p-1.dist-info").mkdir(parents=True)
    rows = ["p/a.py", "../../../mine.py", "../../../../../../etc/x.py", "/etc/y.py", "p/../../../../../z.py"]
    (site / "p-1.dist-info" / "RECORD").write_text("".join(f"{row},,\n" for row in rows))
    assert wheel_files.list_sources(site, tmp_path / "top") == {"p": ["lib/site-packages/p/a.py"]}


@pytest.mark.parametrize("kind", ["link", "hard", "pipe"])
def test_security_12_locks_and_logs_are_opened_through_no_link(tmp_path: Path, kind: str) -> None:
    mine, folder = tmp_path / "mine", tmp_path / "x.plan"
    mine.write_text("years of work")
    (folder / "logs").mkdir(parents=True)
    for place in (folder / ".lock", folder / "logs" / "build.log"):
        if kind == "link":
            place.symlink_to(mine)
        elif kind == "hard":
            os.link(mine, place)
        else:
            os.mkfifo(place)
    with pytest.raises(ConfigError, match="leads somewhere else"), lock_folder(folder):
        pass
    with pytest.raises(OSError, match="file"):
        StepLog(folder / "logs" / "build.log", on_line=print, mask=str)
    assert mine.read_text() == "years of work"


def test_security_12_drafts_take_no_place_that_is_foreseen(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("years of work")
    (tmp_path / f".plan.json.recipe-{os.getpid()}").symlink_to(mine)
    write_atomic(tmp_path / "plan.json", "new")
    assert mine.read_text() == "years of work"
    assert not (tmp_path / "plan.json").is_symlink()
    assert name_draft(tmp_path / "x").name != f".x.recipe-{os.getpid()}"
    name_draft(tmp_path / "plan.json").symlink_to(mine)
    write_atomic(tmp_path / "plan.json", "newer")
    assert mine.read_text() == "years of work"
