"""Every site, backend and recipe of the matrix gives the plan in tests/golden, to the byte.

Whole folders are kept of one recipe for each site and backend; a file that is the same in all of them is kept once, in
`common/`, and one that is the same in all folders of a site in `common.SITE/`. `decisions.txt` is the table of the
other targets: what was decided, and the digest of each file; of a whole folder it says which files are kept elsewhere.
`make golden` rewrites all of it; what has changed is then read as a diff.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import shutil
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
from support.matrix import TOOL, Case, cases, outcome, plans, recipes, shown
from support.rows import rows

from builder.compile import render
from builder.compile.image_plans import make_image_target
from builder.compile.start_plans import START, make_kernel_plan, make_module_plan
from builder.compile.wrap_plans import RELOCATE
from builder.model.finding import select_errors
from builder.model.plan import Plan, to_json
from builder.model.target import Context
from builder.parse.site import load_site

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
# The same in every plan of a site and backend, so not in the table; job scripts hold the suite, which a recipe chooses.
BY_SITE = (".dockerignore", "run/job.sh", "run/rank.sh")
PROTECTED = "image/protected.txt"  # The same in every plan that has it; no whole folder does.
RECORDS = ("recipe.json", "image/recipe.json")  # all of it is in plan.json too
FIRST_SITES = ("dawn", "frontier", "local", "lumi-c", "lumi-g", "mn5", "mn5-gpp")
# The recipe whose folders are kept whole, and that for targets which refuse it.
WHOLE, WHOLE_OTHER = "full", "mnist"
# A site and backend without a whole folder: its scripts are those of another site, its run/ is that of this backend.
WITHOUT = {("lumi-c", "apptainer"): "cotainr"}
# Sites whose start.sh is kept: with folders on the nodes, without a scheduler, with a module of the runtime. Of the
# first one all that a module and a kernel have and no plan of the site has.
STARTED = ("lumi-g", "local", "mn5")
DIFF_LINES = 60


def whole(case: Case) -> Case:
    """The target of the same site and backend whose folder is kept whole."""
    backend = WITHOUT.get((case.site, case.backend), case.backend)
    found = Case(stem=WHOLE, site=case.site, backend=backend)
    return found if isinstance(outcome(found), Plan) else replace(found, stem=WHOLE_OTHER)


def is_whole(case: Case) -> bool:
    """Whether the folder is kept: of the first sites each backend has one, of the others the default backend."""
    return case == whole(case) and (case.site in FIRST_SITES or case.backend == default_backend(case.site))


@cache
def default_backend(site: str) -> str:
    return next(case.backend for case in cases() if case.site == site)


@cache
def whole_cases() -> tuple[Case, ...]:
    return tuple(case for case in cases() if is_whole(case))


@cache
def texts_of(case: Case) -> dict[str, str]:
    """Path in the plan folder -> text, of what differs between targets and is not in plan.json."""
    plan = outcome(case)
    if not isinstance(plan, Plan):
        return {}
    skipped = {*VERBATIM, *RECORDS}
    return {"plan.json": _plan_json(plan)} | {file.path: file.text for file in plan.files if file.path not in skipped}


@cache
def places(case: Case) -> dict[str, str]:
    """Path in the plan folder of a whole target -> the folder of tests/golden that keeps its text."""
    found = {}
    for path in texts_of(case):
        having = [other for other in whole_cases() if path in texts_of(other)]
        of_the_site = [other for other in having if other.site == case.site]
        found[path] = case.name
        for folder, others in ((f"common.{case.site}", of_the_site), ("common", having)):
            if len(others) > 1 and len({texts_of(other)[path] for other in others}) == 1:
                found[path] = folder
    return found


@cache
def golden_files() -> dict[str, str]:
    """Path below tests/golden -> text, of all but the table."""
    files = {
        f"{folder}/{path}": texts_of(case)[path] for case in whole_cases() for path, folder in places(case).items()
    }
    protected = next(texts_of(case)[PROTECTED] for case in cases() if PROTECTED in texts_of(case))
    return files | {f"common/{PROTECTED}": protected} | started_files()


def started_files() -> dict[str, str]:
    """What `recipe module` and `recipe kernel` write, but for what a plan of the same site has."""
    found = {}
    for site in STARTED:
        target = make_image_target(load_site(site), image="/images/digits.sif", context=Context(tool=TOOL))
        programs = {"digits-exec": "", "python3": "python3"}
        module = make_module_plan(target, name="digits", version=site, programs=programs)
        for plan in (module, make_kernel_plan(target, title=f"digits ({site})")):
            files = {file.path: file.text for file in plan.files if file.path.split("/")[0] not in ("engine.sh", "run")}
            kept = files if site == STARTED[0] else (START,)
            found |= {f"started.{site}/{path}": files[path] for path in kept}
    return found


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
    if is_whole(case):
        elsewhere = [
            f"file     {folder}/{path}" for path, folder in sorted(places(case).items()) if folder != case.name
        ]
        return "\n".join([f"=== {case.name}", "whole", *elsewhere]) + "\n"
    found = outcome(case)
    if not isinstance(found, Plan):
        return f"=== {case.name}\nrefused\n{shown(found)}"
    lines = [f"=== {case.name}", f"base     {found.base}", f"torch    {found.expect.get('torch') or 'none'}"]
    lines += [f"package  {package.asked}  ->  {package.became}  ({package.why})" for package in found.packages]
    lines += [f"step     {step.name}: {step.why}" for step in found.steps]
    lines += shown(found.findings).splitlines()
    texts = [item for item in sorted(texts_of(case).items()) if not _is_of_the_site(case, path=item[0])]
    lines += [f"file     {path}  {hashlib.sha256(text.encode()).hexdigest()[:16]}" for path, text in texts]
    return "\n".join(lines) + "\n"


def _is_of_the_site(case: Case, *, path: str) -> bool:
    """Whether a file is the same in the whole folder of the site, which keeps its text."""
    if path == PROTECTED:
        return True
    return path in BY_SITE and is_whole(whole(case)) and texts_of(case)[path] == texts_of(whole(case)).get(path)


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
        kept = path.replace(image_of(case), image_of(whole(case)))
        stored_at = GOLDEN / places(whole(case)).get(kept, whole(case).name) / kept  # not there where none is kept
        before = stored_at.read_bytes().decode() if stored_at.is_file() else ""
        before = before.replace(image_of(whole(case)), image_of(case))
        names = f"{stored_at.relative_to(GOLDEN)}", f"{case.name}/{path}"
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
    for name, text in golden_files().items():
        path = GOLDEN / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    parts = [decisions(case) for case in cases()]
    (GOLDEN / DECISIONS).write_text("\n".join(parts), encoding="utf-8", newline="")


@rows("case", whole_cases(), ids=lambda case: case.name)
def test_a_whole_folder_is_the_golden_one(case: Case) -> None:
    assert isinstance(outcome(case), Plan)
    for path, folder in places(case).items():
        stored = GOLDEN / folder / path
        assert stored.is_file(), f"new file {folder}/{path}: `make golden`"
        assert texts_of(case)[path] == stored.read_bytes().decode(), f"{folder}/{path}"


@rows("case", cases(), ids=lambda case: case.name)
def test_plan_is_the_golden_one(case: Case) -> None:
    stored = table().get(case.name, "").rstrip("\n") + "\n"
    if decisions(case) != stored:
        pytest.fail(f"{case.name} is not what decisions.txt says\n{difference(case, stored)}", pytrace=False)
    if PROTECTED in texts_of(case):
        assert texts_of(case)[PROTECTED] == golden_files()[f"common/{PROTECTED}"]


def test_a_changed_digest_names_the_file_and_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in cases() if case.name == "climate.dawn.apptainer")
    shutil.copytree(GOLDEN / "common.dawn", tmp_path / "common.dawn")
    monkeypatch.setattr(f"{__name__}.GOLDEN", tmp_path)
    script = tmp_path / "common.dawn" / "run" / "container.sh"
    script.write_text(script.read_text() + "the line of an earlier version\n")
    stored = re.sub(r"(file +run/container\.sh +)\S.*", r"\g<1>0123456789abcdef", decisions(case))
    told = difference(case, stored.replace("(conda)", "(pip)", 1))
    assert "-package  numpy  ->  numpy  (pip)\n+package  numpy  ->  numpy  (conda)\n" in told
    assert "-file     run/container.sh  0123456789abcdef\n+file     run/container.sh  " in told
    assert "\nchanged files: run/container.sh\n" in told
    assert "--- common.dawn/run/container.sh\n+++ climate.dawn.apptainer/run/container.sh\n@@" in told
    assert told.endswith("\n-the line of an earlier version")


@pytest.mark.property
def test_each_line_of_a_template_is_in_a_whole_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    templates = tmp_path / "templates"
    shutil.copytree(render.TEMPLATES, templates, ignore=shutil.ignore_patterns("__pycache__"))
    before = {case: texts_of(case) for case in whole_cases()}
    request.addfinalizer(_forget)
    monkeypatch.setattr(render, "TEMPLATES", templates)
    unseen = []
    for template in sorted(templates.iterdir()):
        if template.name in {*VERBATIM.values(), RELOCATE} or template.name.startswith(("report.", "bundle.")):
            continue  # no files of the plans of builds, or programs that tests of their own run
        lines = template.read_text(encoding="utf-8").splitlines(keepends=True)
        for number, line in enumerate(lines):
            if not line.strip() or "{%" in line or "{#" in line:
                continue
            changed = [*lines[:number], line.rstrip("\n") + " changed\n", *lines[number + 1 :]]
            template.write_text("".join(changed), encoding="utf-8")
            if not _differs(before):
                unseen.append(f"{template.name}:{number + 1}: {line.rstrip()}")
        template.write_text("".join(lines), encoding="utf-8")
    assert not unseen, "\n".join(unseen)


def _differs(before: dict[Case, dict[str, str]]) -> bool:
    _forget()
    return any(texts_of(case) != texts for case, texts in before.items())


def _forget() -> None:
    for function in (outcome, texts_of, render.read_template, render._make_environment):
        function.cache_clear()


def test_what_starts_an_image_is_golden() -> None:
    """Of a module and a kernel; engine.sh and run/ are those of the golden plans."""
    assert [path for path, text in started_files().items() if (GOLDEN / path).read_text(encoding="utf-8") != text] == []


def test_nothing_else_is_golden() -> None:
    files = [path for path in GOLDEN.rglob("*") if path.is_file()]
    assert {str(path.relative_to(GOLDEN)) for path in files} == {*golden_files(), DECISIONS}
    assert list(table()) == [case.name for case in cases()]
    assert len(files) < 380
    root = str(Path(__file__).parents[2])
    assert not [path for path in files if root in path.read_text(encoding="utf-8")]


def test_files_that_are_not_stored_are_stored_elsewhere() -> None:
    for case, plan in plans():
        texts = {file.path: file.text for file in plan.files}
        for path in texts.keys() & VERBATIM.keys():
            assert texts[path] == render.read_template(VERBATIM[path]), (case.name, path)
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
