"""Whole plan folders: every site, backend and recipe of the matrix gives the files in tests/golden, to the byte.

`make golden` rewrites them; what has changed is then read as a diff.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from matrix import Case, cases, outcome, plans, recipes, shown

from builder.compile.render import verbatim
from builder.model.finding import errors
from builder.model.plan import Plan
from builder.model.plan_json import to_json

GOLDEN = Path(__file__).parents[1] / "golden"
# The same in every plan: their text is a file of builder/data/templates.
VERBATIM = {
    "engine.sh": "engine.sh",
    "record.sh": "record.sh",
    "run/suite.sh": "suite.sh",
    "run/watch.sh": "watch.sh",
    "verify.py": "verify.py",
    "image/install.sh": "install.sh",
    "image/protect.py": "protect.py",
    "image/times.py": "times.py",
    "image/verify.py": "verify.py",
}
# The same in every plan of a site and backend; job scripts hold the suite, which a recipe chooses.
BY_SITE = (".dockerignore", "image/protected.txt", "run/job.sh", "run/rank.sh")
RECORDS = ("recipe.json", "image/recipe.json")  # all of it is in plan.json too


def stored(case: Case, plan: Plan) -> dict[str, str]:
    """Path below tests/golden -> text, for everything of a plan that is worth a file."""
    texts = {f"{case.name}/plan.json": _plan_json(plan)}
    for file in plan.files:
        if file.path in BY_SITE:
            texts[f"site.{case.site}.{case.backend}/{file.path}"] = file.text
        elif file.path not in VERBATIM and file.path not in RECORDS:
            texts[f"{case.name}/{file.path}"] = file.text
    return texts


def _plan_json(plan: Plan) -> str:
    content = json.loads(to_json(plan))
    content["files"] = [
        file["path"] + (" (executable)" if file["executable"] else "")
        for file in content["files"]
        if file.keys() == {"path", "text", "executable"}
    ]
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def expected(case: Case) -> dict[str, str]:
    """What tests/golden has to hold of one target."""
    found = outcome(case)
    return stored(case, found) if isinstance(found, Plan) else {f"{case.name}/refused.txt": shown(found)}


def _folders(case: Case) -> tuple[Path, ...]:
    return GOLDEN / case.name, GOLDEN / f"site.{case.site}.{case.backend}"


@pytest.fixture(scope="session", autouse=True)
def _update(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--update-golden", default=False):
        return
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for case in cases():
        for name, text in expected(case).items():
            path = GOLDEN / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_plan_is_the_golden_one(case: Case) -> None:
    texts = expected(case)
    for name, text in texts.items():
        assert (GOLDEN / name).is_file(), f"new file {name}: `make golden`"
        assert text == (GOLDEN / name).read_bytes().decode(), name
    there = {str(path.relative_to(GOLDEN)) for path in _folders(case)[0].rglob("*") if path.is_file()}
    assert there == {name for name in texts if name.startswith(f"{case.name}/")}


def test_nothing_else_is_golden() -> None:
    names = {path.name for case in cases() for path in _folders(case)}
    files = [path for path in GOLDEN.rglob("*") if path.is_file()]
    assert {path.relative_to(GOLDEN).parts[0] for path in files} <= names
    assert len(files) < 1300
    root = str(Path(__file__).parents[2])
    assert not [path for path in files if root in path.read_text(encoding="utf-8")]


def test_files_that_are_not_stored_are_stored_elsewhere() -> None:
    for case, plan in plans():
        texts = {file.path: file.text for file in plan.files}
        for path in texts.keys() & VERBATIM.keys():
            assert texts[path] == verbatim(VERBATIM[path]), (case.name, path)
        record = json.loads(texts["recipe.json"])
        assert texts.get("image/recipe.json") in (None, texts["recipe.json"])
        for name in ("recipe", "site", "backend", "base", "tool", "expect"):
            assert record[name] == getattr(plan, name), (case.name, name)
        assert record["packages"] == [[item.asked, item.became, item.why] for item in plan.packages]
        assert record["digest"] == recipes()[case.stem][0].digest


def test_every_job_has_the_name_of_its_recipe() -> None:
    for case, plan in plans():
        slug = re.sub(r"[^a-z0-9]+", "-", plan.recipe.lower())
        for file in plan.files:
            for name in re.findall(r"^#SBATCH --job-name=(.*)$", file.text, re.MULTILINE):
                assert name.startswith(f"{slug}-"), (case.name, file.path)


def test_the_matrix_has_plans_and_refusals_of_every_backend() -> None:
    planned = {case.backend for case, _ in plans()}
    assert planned == {"apptainer", "cotainr", "docker", "layers", "tykky"}
    refused = [found for case in cases() if not isinstance(found := outcome(case), Plan)]
    assert len(refused) > 10
    assert all(errors(findings) for findings in refused)
