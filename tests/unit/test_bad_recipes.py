"""Every faulty recipe in tests/bad/recipes gives exactly the findings beside it, in the user's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.model.finding import ConfigError
from builder.model.reading.load import load_recipe

BAD = Path(__file__).parents[1] / "bad" / "recipes"
SECOND_FILES = {"more/other.txt", "pip/base.txt", "more/a.txt", "constraints.txt"}


def _cases() -> list[Path]:
    """A case is the file `CASE.expected` beside `CASE.yml`/`CASE.txt`, or beside the folder `CASE`."""
    return sorted(BAD.glob("*.expected"))


def _recipe(expected: Path) -> Path:
    folder = expected.with_suffix("")
    if folder.is_dir():
        found = [path for path in sorted(folder.iterdir()) if path.is_file()]
        named = [path for path in found if path.stem in ("requirements", "environment")]
        return (named or found)[0].relative_to(BAD)
    return next(path for path in BAD.glob(expected.stem + ".*") if path != expected).relative_to(BAD)


def shown_findings(error: ConfigError) -> str:
    return "".join(
        f"{finding.level}: {finding.message}\n  at:  {finding.at}\n  fix: {finding.fix}\n" for finding in error.findings
    )


@pytest.mark.parametrize("expected", _cases(), ids=lambda path: path.stem)
def test_findings_are_exactly_the_expected_ones(expected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)
    with pytest.raises(ConfigError) as caught:
        load_recipe(_recipe(expected))
    assert shown_findings(caught.value) == expected.read_text(encoding="utf-8")
    assert caught.value.exit_code == 2


def test_every_case_has_its_expected_findings() -> None:
    cases = {
        path.name.removesuffix("".join(path.suffixes[-1:])) for path in BAD.iterdir() if path.suffix != ".expected"
    }
    assert cases == {path.stem for path in _cases()}
    assert len(cases) >= 75


def test_no_two_cases_expect_the_same_messages() -> None:
    texts = [
        "".join(
            line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if not line.startswith("  at:")
        )
        for path in _cases()
    ]
    assert len(set(texts)) == len(texts)


def test_security_21_names_of_rpm_are_names_and_words_of_package_managers_are_none(tmp_path: Path) -> None:
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
