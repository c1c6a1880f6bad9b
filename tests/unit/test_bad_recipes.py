"""Every faulty recipe in tests/bad gives exactly the findings that are stored for it, in the user's words."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faulty import BAD, RECIPES, Faulty, faulty, said
from support.rows import rows

from builder.model.finding import ConfigError
from builder.parse.recipe import load_recipe

CASES = faulty(*RECIPES)


@rows("case", CASES, ids=lambda case: case.name)
def test_findings_are_exactly_the_expected_ones(case: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.placed(tmp_path))
    with pytest.raises(ConfigError) as caught:
        load_recipe(Path(case.path), choice=case.choice)
    assert said(caught.value) == case.expected
    assert caught.value.exit_code == 2


def test_every_faulty_file_has_its_expected_findings() -> None:
    assert {path.name for path in BAD.iterdir()} == {*RECIPES, "site"}
    for folder in BAD.iterdir():
        names = [path.stem for path in folder.iterdir() if path.suffix != ".expected" and path.name != "cases.yaml"]
        expected = [path.stem for path in folder.glob("*.expected")]
        assert sorted(names) == sorted(expected), folder.name


def test_no_case_is_lost_and_no_two_have_one_name() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) == 228
    assert len(faulty("site")) == 76


def test_no_two_cases_expect_the_same_messages() -> None:
    texts = [
        "".join(line for line in case.expected.splitlines(keepends=True) if not line.startswith("  at:"))
        for case in CASES
    ]
    assert len(set(texts)) == len(texts)


def test_security_21_rpm_names_pass_and_words_of_managers_do_not(tmp_path: Path) -> None:
    recipe = tmp_path / "x.yml"
    good = [
        "libX11-devel",
        "libgcc_s1",
        "gcc-c++",
        "g++",
        "ImageMagick",
        "python3.11",
        "libgl1=1.7.0-1",
        "curl=8.5.0-r0",
    ]
    text = "dependencies: [python=3.12]\ncontainer: {{system: ['{}']}}\n"
    for name in good:
        recipe.write_text(text.format(name))
        assert load_recipe(recipe).container.system == (name,)
    for name in (
        "less-",
        "-less",
        "+less",
        "!less",
        "~less",
        "@core",
        "less@edge",
        "less>1",
        "less*",
        "less?",
        "_less",
    ):
        recipe.write_text(text.format(name))
        with pytest.raises(ConfigError, match="is not the name of a distribution package"):
            load_recipe(recipe)
