"""The JSON Schemas: current, valid for every good file, and against faulty files that recipe refuses, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.faulty import faulty
from support.rows import rows
from support.schemas import FOLDER, make_schemas

from builder.cli.main import run
from builder.cli.schema import KINDS

ROOT = Path(__file__).parents[2]
CHECK = str(Path(sys.executable).with_name("check-jsonschema"))
# Which tables of tests/bad hold files of a kind, and how many of them a schema can tell at least: what is wrong inside
# a line of packages, or between two keys, only recipe knows.
TABLES = {"environment": (("conda", "container", "pip"), 41), "site": (("site",), 35)}


def check_files(kind: str, files: list[Path]) -> dict[str, list[str]]:
    """The files that check-jsonschema finds invalid, with what it says of them."""
    words = [CHECK, "-o", "json", "--schemafile", str(FOLDER / f"{kind}.json"), *map(str, files)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found: dict[str, list[str]] = {}
    said = json.loads(done.stdout)  # without the lists where all is well
    for error in [*said.get("errors", []), *said.get("parse_errors", [])]:
        found.setdefault(error["filename"], []).append(str(error.get("message", error)))
    return found


def test_the_schemas_are_made_of_the_dataclasses_as_they_are() -> None:
    for name, text in make_schemas().items():
        assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == text, (
            "PYTHONPATH=tests python -m support.schemas"
        )
    assert sorted(KINDS) == sorted(make_schemas())


def test_the_schemas_are_schemas() -> None:
    subprocess.run([CHECK, "--check-metaschema", *sorted(map(str, FOLDER.glob("*.json")))], check=True)


@rows("kind", ["environment", "site"])
def test_every_file_that_recipe_takes_is_valid(kind: str) -> None:
    places = {"environment": ("recipes", "tests/recipes", "tests/unit/wild"), "site": ("sites",)}[kind]
    files = [path for place in places for path in sorted((ROOT / place).rglob("*.y*ml"))]
    assert len(files) > 10
    assert check_files(kind, files) == {}


@rows("kind", ["environment", "site"])
def test_faulty_files_are_invalid(kind: str, tmp_path: Path) -> None:
    """Each is in the tables of tests/bad: test_bad_recipes and test_sites hold that recipe refuses it."""
    tables, least = TABLES[kind]
    files = [case.placed(tmp_path) / case.path for case in faulty(*tables)]
    found = check_files(kind, [path for path in files if path.suffix in (".yml", ".yaml")])
    assert len(found) >= least, sorted(path.name for path in files if str(path) not in found)


def test_what_init_writes_names_the_schema_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for line, kind in ((["init"], "environment"), (["init", "site", "tiger"], "site")):
        assert run(line) == 0
        name = capsys.readouterr().out.strip()
        second = Path(name).read_text(encoding="utf-8").splitlines()[1]
        mark, _, schema = second.partition("=")
        assert mark == "# yaml-language-server: $schema"
        assert check_files(kind, [tmp_path / name]) == {}
        assert run(["schema", kind]) == 0
        assert Path(schema).read_text(encoding="utf-8") == capsys.readouterr().out


def test_a_file_of_the_name_of_a_schema_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".recipe-environment.schema.json").symlink_to("own.json")
    assert run(["init"]) == 0
    assert not Path("own.json").exists()


def test_an_unknown_kind_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "sites"]) == 2
    fix = "fix: `recipe schema site`, `recipe schema environment` or `recipe schema config`"
    assert fix in capsys.readouterr().err
    assert run(["schema"]) == 2
    assert "no kind of file is named" in capsys.readouterr().err
