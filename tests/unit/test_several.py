"""SITE... ENV...: which word is what, and what several plans leave behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.rows import rows
from test_cli import Call, recipe

from builder.cli.targets import read_words
from builder.model.finding import ConfigError

__all__ = ["recipe"]  # the fixture

ENV = "name: demo\ndependencies: [pip: [six==1.16.0]]\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two environment files and a site of the user's own in an empty folder."""
    monkeypatch.chdir(tmp_path)
    sites = tmp_path.with_name(f"{tmp_path.name}-sites")
    sites.mkdir()
    monkeypatch.setenv("RECIPE_SITES", str(sites))
    (tmp_path / "a.yml").write_text(ENV)
    (tmp_path / "b.yml").write_text(ENV.replace("demo", "other"))
    (tmp_path / "mine.yaml").write_text("name: mine\nextends: local\n")
    return tmp_path


@rows(
    ("words", "sites", "files"),
    [
        (("local", "a.yml"), ["local"], ["a.yml"]),
        (("local", "dawn", "a.yml"), ["local", "dawn"], ["a.yml"]),
        (("local", "a.yml", "b.yml"), ["local"], ["a.yml", "b.yml"]),
        (("mine.yaml", "local", "a.yml"), ["mine.yaml", "local"], ["a.yml"]),
        (("local", "dawn", "no/such/file"), ["local", "dawn"], ["no/such/file"]),
    ],
)
def test_sites_and_files_are_told_apart(words: tuple[str, ...], sites: list[str], files: list[str]) -> None:
    named = read_words(words)
    assert (list(named.sites), [str(path) for path in named.files]) == (sites, files)


@rows(
    ("words", "said"),
    [
        (("lumig", "local", "a.yml"), "'lumig' is neither a known site nor a file: did you mean 'lumi-g'?"),
        (("local", "a.yml", "dawn"), "the site 'dawn' comes after the file 'a.yml'"),
        (("nowhere", "nothing"), "'nowhere' is neither a known site nor a file"),
        (("LUMI-C", "a.yml"), "did you mean 'lumi-c'?"),
        (("mine", "a.yml"), "name the site's file: ./mine.yaml"),
        (("mine", "dawn"), "name the site's file: ./mine.yaml; `recipe build ./mine.yaml dawn a.yml`"),
        (("a.yml", "local"), "write the sites first: `recipe build local a.yml`"),
        ((), "no site and no environment file is named"),
        (("a.yml", "b.yml"), "no site is named: 'a.yml' is a file"),
        (("a.yml",), "no site is named"),
        (("local", "dawn"), "no environment file is named: 'dawn' is a site"),
        (("local",), "no environment file is named"),
        (("none.yml",), "no site is named, and 'none.yml' does not exist"),
        (("local", ""), "argument 2 of 2 is empty, after 'local'"),
        (("local", "a.yml", "a.yml"), "'a.yml' is named twice"),
    ],
)
def test_a_word_out_of_place_is_told(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_words(words)
    assert said in "; ".join(f"{finding.message}: {finding.fix}" for finding in caught.value.findings)


def test_a_plan_folder_for_each_and_the_worst_code(recipe: Call, folder: Path) -> None:
    (folder / "c.yml").write_text("name: third\ndependencies: [pip: [torch==2.6.0]]\ncontainer: {gpu: [amd]}\n")
    answer = recipe("plan", "mn5-gpp", "lumi-c", "a.yml", "b.yml", "-o", "kits")
    kits = [f"kits/{name}-{site}.plan" for name in ("demo", "other") for site in ("mn5-gpp", "lumi-c")]
    arrays = [f"kits/array-{site}.sh" for site in ("mn5-gpp", "lumi-c")]
    assert (answer.code, answer.out.split()) == (0, kits + arrays)
    assert all((folder / path / "plan.json").is_file() for path in kits)
    assert all(os.access(folder / path, os.X_OK) for path in arrays)
    assert "nothing was submitted from the plan folders in" in recipe("status", "kits").err
    refused = recipe("plan", "mn5", "lumi-g", "c.yml", "-o", "more")
    assert (refused.code, refused.out) == (3, "more/third-lumi-g.plan\n")
    assert refused.err.startswith("mn5:\n")
    assert "'mn5' has nvidia GPUs" in refused.err


def test_faults_of_all_files_come_in_one_go(recipe: Call, folder: Path) -> None:
    (folder / "bad.yml").write_text("dependencies: 7\n")
    answer = recipe("plan", "local", "dawn", "bad.yml", "gone.yml")
    assert answer.code == 2
    assert ("bad.yml" in answer.err, "gone.yml" in answer.err) == (True, True)


def test_two_of_one_name_are_refused(recipe: Call, folder: Path) -> None:
    (folder / "b.yml").write_text(ENV)
    assert "two of them are called 'demo'" in recipe("plan", "local", "a.yml", "b.yml").err


@pytest.mark.parametrize("words", [("-o", "x.sif"), ("-o", "a.yml"), ("--sign",)])
def test_what_is_for_one_image_is_refused_for_several(recipe: Call, words: tuple[str, ...]) -> None:
    assert recipe("build", "local", "a.yml", "b.yml", *words).code == 2


def test_what_would_be_done_is_said_of_each(recipe: Call, folder: Path) -> None:
    answer = recipe("build", "--dry-run", "local", "mine.yaml", "a.yml")
    assert answer.code == 0
    assert [line.split(":")[0] for line in answer.out.splitlines() if line.startswith("demo.")] == [
        "demo.local.layers",
        "demo.mine.layers",
    ]
    assert sorted(path.name for path in folder.iterdir()) == ["a.yml", "b.yml", "mine.yaml"]


@pytest.mark.parametrize(("line", "suggested"), [
    ("build -n a.yml local", "recipe build -n local a.yml"),
    ("build a.yml local -o x.sif --dry-run", "recipe build local a.yml -o x.sif --dry-run"),
    ("build -no x.sif a.yml dawn local", "recipe build -no x.sif dawn local a.yml"),
    ("lock local --check", "recipe lock local a.yml --check"),
    ("plan local a.yml --format json", "recipe plan local a.yml"),
    ("plan --format local a.yml", "recipe plan local a.yml"),
    ("plan --xyzzyx=1 --show local a.yml", "recipe plan --show local a.yml"),
    ("inspect -q", "recipe build local a.yml"),
    ("diff --site local a", "recipe lock local a.yml"),
])  # fmt: skip
def test_a_suggested_line_keeps_the_other_options(recipe: Call, line: str, suggested: str) -> None:
    answer = recipe(*line.split())
    assert answer.code == 2
    assert f"`{suggested}`" in answer.err
