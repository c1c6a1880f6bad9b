"""Folders of sites: their order, files that extend each other, a faulty one among them; the template of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.inputs import find_sites_folder
from builder.cli.main import run
from builder.model.finding import ConfigError
from builder.parse.site import BUNDLED, TEMPLATES, find_site_files, load_site

HEAD = "sources: {own: {what: x, checked: '2026-11-20'}}\n"


def folder(path: Path, **sites: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in sites.items():
        (path / f"{name}.yaml").write_text(f"name: {name}\n{text}", encoding="utf-8")
    return path


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The folders of a list, of the user and of the system, by their names."""
    own = {name: tmp_path / name / "recipe" / "sites" for name in ("listed", "user", "system")}
    monkeypatch.setenv("RECIPE_SITES", f"{folder(own['listed'])}::{folder(tmp_path / 'second')}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"{tmp_path / 'none'}:{tmp_path / 'system'}")
    return own | {"second": tmp_path / "second"}


def test_the_first_folder_that_has_a_name_wins(three: dict[str, Path]) -> None:
    for name in ("system", "user", "second", "listed"):
        folder(three[name], **{"lumi-g": f"extends: lumi-g\ntitle: {name}\n", f"of-{name}": "extends: local\n"})
        assert load_site("lumi-g", folder=find_sites_folder()).title == name
    assert {"of-system", "of-user", "of-second", "of-listed", "dawn"} <= set(find_site_files(find_sites_folder()))


def test_one_name_extends_that_of_the_next_folder(three: dict[str, Path]) -> None:
    folder(three["system"], **{"lumi-g": "extends: lumi-g\ndescription: the centre's\n"})
    folder(three["user"], **{"lumi-g": "extends: lumi-g\ntitle: mine\n"})
    site = load_site("lumi-g", folder=find_sites_folder())
    assert (site.title, site.description, site.build.fakeroot) == ("mine", "the centre's", "no")


def test_what_is_inherited_of_other_backends_is_left_out(three: dict[str, Path]) -> None:
    folder(three["user"], mine="extends: lumi-c\nbuild: {backends: [cotainr]}\n")
    build = load_site("mine", folder=find_sites_folder()).build
    assert (set(build.backend_modules), set(build.backend_versions)) == ({"cotainr"}, set())
    folder(three["user"], less="extends: lumi-c\nbuild:\n  backends: [cotainr, tykky]\n  cachedir: /tmp\n")
    build = load_site("less", folder=find_sites_folder()).build
    assert (set(build.backend_modules), set(build.backend_versions)) == ({"cotainr", "tykky"}, {"tykky"})


def test_modules_of_a_backend_that_is_not_listed_are_a_fault(three: dict[str, Path]) -> None:
    own = "extends: lumi-c\nbuild:\n  backends: [cotainr]\n  backend_modules: {apptainer: [load systools]}\n"
    folder(three["user"], mine=own)
    with pytest.raises(ConfigError) as caught:
        load_site("mine", folder=find_sites_folder())
    (fault,) = caught.value.findings
    assert fault.at is not None
    assert (fault.code, fault.at.key, fault.at.line) == ("site-backend", "build.backend_modules.apptainer", 5)
    assert fault.at.file.endswith("mine.yaml")


def test_a_faulty_file_breaks_no_other(three: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder(three["listed"], good="extends: local\n", bad="extends: nothing\n", dawn="extends: dawn\ngpu: 7\n")
    folders = find_sites_folder()
    assert load_site("good", folder=folders).name == "good"
    assert load_site("lumi-g", folder=folders) == load_site("lumi-g")
    for name in ("bad", "dawn"):
        with pytest.raises(ConfigError):
            load_site(name, folder=folders)
    assert run(["sites"]) == 0
    shown = capsys.readouterr()
    assert "good" in shown.out
    assert "bad.yaml:2: extends" in shown.err


def test_a_missing_folder_of_the_list_is_named(
    three: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECIPE_SITES", f"{three['listed']}:/nothere")
    assert run(["sites"]) == 2
    assert "the folder of sites '/nothere' does not exist\n  at:  RECIPE_SITES\n" in capsys.readouterr().err


def test_a_template_is_extended_and_is_no_site(tmp_path: Path) -> None:
    assert [path.stem for path in sorted(TEMPLATES.glob("*.yaml"))] == ["cluster"]
    assert "cluster" not in find_site_files()
    with pytest.raises(ConfigError):
        load_site("cluster")
    own = load_site("mine", folder=folder(tmp_path, mine=f"extends: cluster\n{HEAD}"))
    assert (own.scheduler.kind, own.launch.launcher, own.build.backends[0]) == ("slurm", "srun", "apptainer")


@rows("part", ["node", "network", "runtime", "build"])
def test_the_template_assumes_nothing(part: str, tmp_path: Path) -> None:
    own = load_site("mine", folder=folder(tmp_path, mine=f"extends: cluster\n{HEAD}"))
    section = getattr(own, part)
    known = {name: value for name, value in vars(section).items() if value not in (None, "unknown", (), {}, "")}
    assert set(known) <= {"arch", "source", "command", "backends", "where", "tmpdir_is"}


def test_no_page_takes_the_site_of_this_machine_as_template() -> None:
    page = (BUNDLED.parent / "docs" / "own-site.md").read_text(encoding="utf-8")
    assert "extends: local" not in page


def test_a_file_of_the_list_is_named_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder(tmp_path / "own sites", mine=HEAD) / "mine.yaml"
    monkeypatch.setenv("RECIPE_SITES", str(file))
    assert run(["sites"]) == 2
    shown = f"the folder of sites '{file}' is a file\n  at:  RECIPE_SITES\n"
    assert f"{shown}  fix: name its folder: RECIPE_SITES='{file.parent}'\n" in capsys.readouterr().err
