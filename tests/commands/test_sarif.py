"""`recipe check --format sarif` as a process, held by a validator: the schema of SARIF 2.1.0 with its formats.

sarif-2.1.0.json is the schema of OASIS as @microsoft/sarif-multitool-linux 5.7.0 (npm, MIT) brings it; that program is
104 MB and wants Node. GitHub's own rules on top are in tests/unit/test_outputs.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from support.faulty import RECIPES, faulty

RIGHT = "name: right\ndependencies:\n  - python=3.12\n  - numpy==2.2.6\n"
REFUSED = "name: refused\ndependencies:\n  - pip:\n    - torch==2.8.0+cu126\n    - numpy\n"
FORM = "nmae: form\ndependencies:\n  - python: 3.12\ngpu: [amd]\n"
TAB = "name: tab\ndependencies:\n\t- python=3.12\n"


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json.loads((Path(__file__).parent / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=FormatChecker())


def faults(log: Any, validator: Draft202012Validator) -> list[str]:
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in validator.iter_errors(log)]


def check(folder: Path, *words: str) -> tuple[int, Any]:
    argv = [sys.executable, "-m", "builder.cli.main", "check", "--format", "sarif", *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("words", "code", "results"),
    [
        (("lumi-g", "refused.yml"), 3, 1),  # findings with a line
        (("lumi-g", "mn5", "right.yml"), 0, 0),
        (("form.yml",), 2, 3),  # faults of form
        (("tab.yml",), 2, 1),
        (("my envs/a b%.yml",), 2, 3),
        (("right.yml", "refused.yml", "form.yml", "tab.yml", "requirements.txt"), 2, 6),  # several files, all sites
        (("nowhere.yml",), 2, 1),
    ],
)
def test_what_check_writes_is_sarif(
    words: tuple[str, ...], code: int, results: int, tmp_path: Path, validator: Draft202012Validator
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "my envs").mkdir()
    files = {"right.yml": RIGHT, "refused.yml": REFUSED, "form.yml": FORM, "my envs/a b%.yml": FORM, "tab.yml": TAB}
    for name, text in {**files, "requirements.txt": "numpy>==1\n"}.items():
        (tmp_path / name).write_text(text)
    found, log = check(tmp_path, *words)
    assert (found, faults(log, validator)) == (code, [])
    assert len(log["runs"][0]["results"]) >= results


def test_every_faulty_file_of_the_tests_in_one_log(tmp_path: Path, validator: Draft202012Validator) -> None:
    cases = [case for case in faulty(*RECIPES) if case.path.endswith((".yml", ".txt"))]
    names = [str(case.placed(tmp_path) / case.path) for case in cases]
    code, log = check(tmp_path, *names)
    assert len(names) > 100
    assert (code, faults(log, validator)) == (2, [])
    assert len(log["runs"][0]["results"]) > len(names) / 2


def test_the_validator_finds_faults(tmp_path: Path, validator: Draft202012Validator) -> None:
    (tmp_path / "form.yml").write_text(FORM)
    _, log = check(tmp_path, "form.yml")
    result = log["runs"][0]["results"][0]
    place = result["locations"][0]["physicalLocation"]
    for holder, key, wrong in (
        (result, "level", "fatal"),
        (place["region"], "startLine", 0),
        (place["artifactLocation"], "uri", "a b%.yml"),
        (result, "unknown", 1),
        (result["message"], "text", None),
    ):
        before = holder.get(key)
        holder[key] = wrong
        assert faults(log, validator), key
        if before is None:
            del holder[key]
        else:
            holder[key] = before
    assert faults(log, validator) == []
