"""Every site, backend and recipe of the matrix gives the plan in tests/golden, to the byte.

Whole folders are kept of one recipe for each site and backend. `decisions.txt` is the table of all other targets: what
was decided, and the digest of each file. `make golden` rewrites both; what has changed is then read as a diff.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import shutil
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
from support.matrix import Case, cases, outcome, plans, recipes, shown
from support.rows import rows

from builder.compile.render import read_template
from builder.model.finding import select_errors
from builder.model.plan import Plan, to_json

GOLDEN = Path(__file__).parents[1] / "golden"
DECISIONS = "decisions.txt"
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
# The recipe whose folders are kept whole; these backends refuse it.
WHOLE = "full"
WHOLE_OF = {"cotainr": "mnist", "tykky": "mnist"}
DIFF_LINES = 60


def whole(case: Case) -> Case:
    """The target of the same site and backend whose folder is kept whole."""
    return Case(stem=WHOLE_OF.get(case.backend, WHOLE), site=case.site, backend=case.backend)


@cache
def texts_of(case: Case) -> dict[str, str]:
    """Path in the plan folder -> text, of what differs between targets and is not in plan.json."""
    plan = outcome(case)
    if not isinstance(plan, Plan):
        return {}
    skipped = {*VERBATIM, *RECORDS, *BY_SITE}
    return {"plan.json": _plan_json(plan)} | {file.path: file.text for file in plan.files if file.path not in skipped}


def of_the_site(case: Case) -> dict[str, str]:
    """Path below tests/golden -> text, of what all plans of a site and backend share."""
    found = outcome(case)
    files = found.files if isinstance(found, Plan) else ()
    return {f"site.{case.site}.{case.backend}/{file.path}": file.text for file in files if file.path in BY_SITE}


def _plan_json(plan: Plan) -> str:
    content = json.loads(to_json(plan))
    content["files"] = [
        file["path"] + (" (executable)" if file["executable"] else "")
        for file in content["files"]
        if file.keys() == {"path", "text", "executable"}
    ]
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def decisions(case: Case) -> str:
    """The part of the table that is about one target: a heading, what was decided, a digest of each file."""
    found = outcome(case)
    if not isinstance(found, Plan):
        return f"=== {case.name}\nrefused\n{shown(found)}"
    lines = [f"=== {case.name}", f"base     {found.base}", f"torch    {found.expect.get('torch') or 'none'}"]
    lines += [f"package  {package.asked}  ->  {package.became}  ({package.why})" for package in found.packages]
    lines += [f"step     {step.name}: {step.why}" for step in found.steps]
    lines += shown(found.findings).splitlines()
    texts = sorted(texts_of(case).items())
    lines += [f"file     {path}  {hashlib.sha256(text.encode()).hexdigest()[:16]}" for path, text in texts]
    return "\n".join(lines) + "\n"


def expected(case: Case) -> dict[str, str]:
    """What tests/golden holds of one target as files."""
    own = {f"{case.name}/{path}": text for path, text in texts_of(case).items()} if case == whole(case) else {}
    return own | of_the_site(case)


def table() -> dict[str, str]:
    """Name of a target -> its part of decisions.txt as it is stored."""
    parts = re.split("^=== ", (GOLDEN / DECISIONS).read_bytes().decode(), flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: f"=== {part}" for part in parts}


def difference(case: Case, stored: str) -> str:
    """What a reviewer needs to know of a part of the table that is not the stored one.

    The table holds no texts: a file that has changed is compared with the same file of the whole folder, in which the
    image has the name of this one.
    """
    lines = list(
        difflib.unified_diff(stored.splitlines(), decisions(case).splitlines(), "decided", "now", n=0, lineterm="")
    )
    changed = sorted({line.split()[1] for line in lines if re.match(r"[+-]file ", line)})
    lines += ["", f"changed files: {', '.join(changed) or 'none'}"]
    for path in changed:
        folder = GOLDEN / whole(case).name
        kept = folder / path.replace(image_of(case), image_of(whole(case)))
        before = kept.read_bytes().decode() if kept.is_file() else ""
        before = before.replace(image_of(whole(case)), image_of(case))
        names = f"{folder.name}/{kept.relative_to(folder)}", f"{case.name}/{path}"
        texts = before.splitlines(), texts_of(case).get(path, "").splitlines()
        lines += ["", *islice(difflib.unified_diff(*texts, *names, lineterm="", n=0), DIFF_LINES)]
    return "\n".join(lines)


def image_of(case: Case) -> str:
    """The name of the image, which many files repeat."""
    plan = outcome(case)
    return Path(plan.image).stem if isinstance(plan, Plan) else case.name


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
    parts = [decisions(case) for case in cases() if case != whole(case)]
    (GOLDEN / DECISIONS).write_text("\n".join(parts), encoding="utf-8", newline="")


@rows("case", cases(), ids=lambda case: case.name)
def test_plan_is_the_golden_one(case: Case) -> None:
    texts = expected(case)
    for name, text in texts.items():
        assert (GOLDEN / name).is_file(), f"new file {name}: `make golden`"
        assert text == (GOLDEN / name).read_bytes().decode(), name
    if case == whole(case):
        assert isinstance(outcome(case), Plan)
        there = {str(path.relative_to(GOLDEN)) for path in (GOLDEN / case.name).rglob("*") if path.is_file()}
        assert there == {name for name in texts if name.startswith(f"{case.name}/")}
    else:
        stored = table().get(case.name, "").rstrip("\n") + "\n"
        if decisions(case) != stored:
            pytest.fail(f"{case.name} is not what decisions.txt says\n{difference(case, stored)}", pytrace=False)


def test_a_changed_digest_names_the_file_and_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in cases() if case.name == "climate.dawn.apptainer")
    shutil.copytree(GOLDEN / "full.dawn.apptainer", tmp_path / "full.dawn.apptainer")
    monkeypatch.setattr(f"{__name__}.GOLDEN", tmp_path)
    script = tmp_path / "full.dawn.apptainer" / "run" / "container.sh"
    script.write_text(script.read_text() + "the line of an earlier version\n")
    stored = re.sub(r"(file +run/container\.sh +)\S.*", r"\g<1>0123456789abcdef", decisions(case))
    told = difference(case, stored.replace("(conda)", "(pip)", 1))
    assert "-package  numpy  ->  numpy  (pip)\n+package  numpy  ->  numpy  (conda)\n" in told
    assert "-file     run/container.sh  0123456789abcdef\n+file     run/container.sh  " in told
    assert "\nchanged files: run/container.sh\n" in told
    assert "--- full.dawn.apptainer/run/container.sh\n+++ climate.dawn.apptainer/run/container.sh\n@@" in told
    assert told.endswith("\n-the line of an earlier version")


def test_nothing_else_is_golden() -> None:
    kept = {case for case in cases() if case == whole(case)}
    names = {case.name for case in kept} | {f"site.{case.site}.{case.backend}" for case in cases()}
    files = [path for path in GOLDEN.rglob("*") if path.is_file()]
    assert {path.relative_to(GOLDEN).parts[0] for path in files} <= names | {DECISIONS}
    assert list(table()) == [case.name for case in cases() if case not in kept]
    assert len(files) < 350
    root = str(Path(__file__).parents[2])
    assert not [path for path in files if root in path.read_text(encoding="utf-8")]


def test_files_that_are_not_stored_are_stored_elsewhere() -> None:
    for case, plan in plans():
        texts = {file.path: file.text for file in plan.files}
        for path in texts.keys() & VERBATIM.keys():
            assert texts[path] == read_template(VERBATIM[path]), (case.name, path)
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
    assert all(select_errors(findings) for findings in refused)
