"""What lies in a plan folder is read as strictly as it was written, and an image goes nowhere but beside its folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.execute.plan_folder import write_plan
from builder.execute.report_file import read_report
from builder.model.finding import ConfigError
from builder.model.plan import Plan
from builder.slurm.ledger import Ledger, SubmittedJob, name_ledger_file, read_ledger, read_record, write_ledger
from builder.slurm.monitor import LogTail
from builder.slurm.status import read_plan_list
from builder.slurm.submitted_jobs import check_output, read_plan, require_ledger
from builder.system import trust
from builder.system.trust import TRUST, check_folder

PlanOf = Callable[..., Plan]
RECORD = {"schema": 1, "job": "12", "exit_code": 3, "reason": "", "started": 10, "ended": 14, "nodes": "n", "log": "l"}
JOB = SubmittedJob(job="12", step="build", script="b.sbatch", log="b-12.log")
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**70,
    1e300,
    "",
    "x\x1b]0;y\x07",
    [],
    {},
    [[]],
    {"a": {}},
    "../x",
    "/etc/passwd",
)


@pytest.fixture
def kit(plan_of: PlanOf, tmp_path: Path) -> Path:
    folder = tmp_path / "x.plan"
    write_plan(plan_of(), folder, recipe_folder=tmp_path)
    write_ledger(Ledger(site="s", kind="build", output=str(tmp_path / "x.sif"), jobs=(JOB,)), folder)
    return folder


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    (finding,) = caught.value.findings
    assert finding.fix
    assert finding.message.isprintable()
    return finding.code


def read_or_code(call: Callable[[], object]) -> object:
    """What was read, or the code of the one finding that says why not."""
    try:
        return call()
    except ConfigError as error:
        (finding,) = error.findings
        return finding.code if finding.message.isprintable() else "not printable"


def places(value: Any) -> list[list[Any]]:
    """The path to every value in a document."""
    found: list[list[Any]] = [[]]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += [[key, *path] for path in places(inner)]
    return found


def changed(document: Any, path: list[Any], value: Any) -> str:
    copy = json.loads(json.dumps(document))
    if not path:
        return json.dumps(value)
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(copy)


# --- finding 3: where an image goes -----------------------------------------------------------------------------------


def test_security_03_an_image_goes_only_beside_its_plan_folder(kit: Path, tmp_path: Path) -> None:
    plan = read_plan(kit)
    check_output(require_ledger(kit), plan, folder=kit)
    for output in ("/home/me/.bashrc", str(tmp_path / "y.sif"), str(tmp_path / "sub" / "x.sif"), str(kit / "x.sif")):
        for kind in ("build", "convert"):
            ledger = Ledger(site="s", kind=kind, output=output, jobs=(JOB,))  # type: ignore[arg-type]
            assert refused(lambda ledger=ledger: check_output(ledger, plan, folder=kit)) == "output-elsewhere"  # type: ignore[misc]


def test_security_03_what_tests_an_image_publishes_nothing_else(plan_of: PlanOf, kit: Path, tmp_path: Path) -> None:
    """A ledger that calls itself a smoke test names the image that its plan is for, and no other."""
    plan = plan_of({}, image=str(tmp_path / "own.sif"))
    check_output(Ledger(site="s", kind="smoke", output=plan.image), plan, folder=kit)
    other = Ledger(site="s", kind="smoke", output=str(tmp_path / ".bashrc"))
    assert refused(lambda: check_output(other, plan, folder=kit)) == "output-elsewhere"


def test_security_03_what_is_published_lies_in_the_plan_folder(plan_of: PlanOf, kit: Path, tmp_path: Path) -> None:
    """A plan around an image that is there names it by its absolute path: none of its jobs may move that."""
    ledger = Ledger(site="s", kind="build", output=str(tmp_path / "x.sif"))
    for image in ("/home/me/.ssh/id", "../y.sif", "a/../../y"):
        assert (
            refused(lambda image=image: check_output(ledger, plan_of({}, image=image), folder=kit))
            == "output-elsewhere"
        )  # type: ignore[misc]


def test_security_03_an_output_that_is_a_link_of_another_user_is_refused(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.sif").symlink_to(tmp_path / "mine")
    check_output(require_ledger(kit), read_plan(kit), folder=kit)
    ledger, plan = require_ledger(kit), read_plan(kit)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert refused(lambda: check_output(ledger, plan, folder=kit)) == "output-elsewhere"


@pytest.mark.parametrize("image", ["/home/me/.ssh/id", "../x.sif", "a/../../x", "", "x\nfix: rm", "./x.sif", "a//b"])
def test_security_03_a_plan_names_only_what_is_in_its_folder(kit: Path, image: str) -> None:
    document = json.loads((kit / "plan.json").read_text())
    for path in (["image"], ["steps", 0, "produces", 0], ["steps", 0, "script"], ["files", 0, "path"]):
        (kit / "plan.json").write_text(changed(document, path, image))
        assert refused(lambda: read_plan(kit)) == "plan-faulty"


def test_security_03_a_step_has_a_plain_name(kit: Path) -> None:
    document = json.loads((kit / "plan.json").read_text())
    for name in ("../../x", "a/b", "\x1b]0;pwned\x07", "", "-x", "a b"):
        (kit / "plan.json").write_text(changed(document, ["steps", 0, "name"], name))
        assert refused(lambda: read_plan(kit)) == "plan-faulty"


@pytest.mark.parametrize("place", ["plan.json", "jobs/submitted.json", "jobs/12.json", "report.json", "jobs"])
def test_security_03_no_link_in_a_plan_folder_is_followed(kit: Path, tmp_path: Path, place: str) -> None:
    (kit / "jobs/12.json").write_text(
        '{"schema": 1, "job": "12", "exit_code": 0, "reason": "", "started": 1, "ended": 2}'
    )
    (kit / "report.json").write_text("{}")
    elsewhere = tmp_path / "elsewhere"
    (kit / place).rename(elsewhere)
    (kit / place).symlink_to(elsewhere)
    assert refused(lambda: check_folder(kit)) == "folder-link"
    if place == "plan.json":
        assert refused(lambda: read_plan(kit)) == "no-plan"
    elif place in ("jobs", "jobs/submitted.json"):
        assert refused(lambda: read_ledger(kit)) == "jobs-file"
    if place in ("jobs", "jobs/12.json"):
        assert read_record(kit, "12") is None
    assert read_report(kit) is None


def test_the_link_to_the_published_image_stays(kit: Path, tmp_path: Path) -> None:
    for name in ("x.sif", "x.sif.failed"):
        (tmp_path / name).write_text("image")
        (kit / "image.sif").unlink(missing_ok=True)
        (kit / "image.sif").symlink_to(f"../{name}")
        check_folder(kit)
    (kit / "image.sif").unlink()
    (kit / "image.sif").symlink_to("../other.sif")
    assert refused(lambda: check_folder(kit)) == "folder-link"


def test_security_03_a_log_that_is_a_link_or_a_pipe_is_not_read(kit: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    lines: list[str] = []
    (kit / "b-12.log").symlink_to(tmp_path / "secret")
    os.mkfifo(kit / "b-13.log")
    for name in ("b-12.log", "b-13.log"):
        assert not LogTail(folder=kit, name=name, on_line=lines.append, mask=str).read()
    assert lines == []


# --- finding 12: whose it is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [".", "jobs", "jobs/submitted.json", "plan.json", "build.sh"])
def test_security_12_what_all_may_write_is_refused(kit: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_folder(kit)
    (kit / place).chmod(0o777)
    assert refused(lambda: check_folder(kit)) == "folder-foreign"
    monkeypatch.setattr(TRUST, "trusted", True)
    check_folder(kit)
    assert read_ledger(kit) is not None


@pytest.mark.parametrize("place", ["jobs/submitted.json", "jobs", "."])
def test_security_12_what_all_may_write_is_not_believed(kit: Path, place: str) -> None:
    """Whatever was looked at before: each file is asked when it is read."""
    assert read_ledger(kit) is not None
    (kit / place).chmod(0o666 if place.endswith("json") else 0o777)
    assert refused(lambda: read_ledger(kit)) == "folder-foreign"


def test_security_12_that_a_group_may_write_is_said_once(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(TRUST, "say", said.append)
    monkeypatch.setattr(TRUST, "reported", set())
    row = kit.stat()
    for mode, group in ((0o40775, row.st_uid), (0o40755, row.st_uid + 1), (0o40775, row.st_uid + 1)):
        noted = os.stat_result((mode, *row[1:5], group, *row[6:]))
        for _ in range(2):
            trust._check(noted, kit, what="plan folder")
            trust._check(noted, kit / "jobs", what="folder")
    assert [line.partition(":")[2] for line in said] == [
        f" the group {row.st_uid + 1} may write the plan folder '{kit}': its members decide what is run"
    ]


def test_security_12_a_folder_that_all_may_replace_is_refused(
    plan_of: PlanOf, kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two steps of a build somebody else could put another folder, with other scripts, in its place."""
    check_folder(kit)
    above, new = kit.parent, kit.parent / "new" / "new.plan"
    for mode, says in ((0o777, "folder-foreign"), (0o1777, ""), (0o775, "")):
        above.chmod(mode)
        for use in (lambda: check_folder(kit), lambda: write_plan(plan_of({}), new, recipe_folder=kit)):
            if says:
                assert refused(use) == says
                assert not new.parent.exists()
            else:
                use()
    above.chmod(0o777)
    monkeypatch.setattr(TRUST, "trusted", True)
    check_folder(kit)


def test_security_12_a_folder_of_another_user_is_not_written(
    plan_of: PlanOf, kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    if os.getuid() == 0:
        pytest.skip("what is root's is trusted")
    before = (kit / "plan.json").read_text()
    plan = plan_of({})
    assert refused(lambda: write_plan(plan, kit, recipe_folder=kit)) == "folder-foreign"
    assert refused(lambda: read_plan(kit)) == "folder-foreign"
    assert refused(lambda: read_record(kit, "submitted")) == "folder-foreign"
    assert (kit / "plan.json").read_text() == before


# --- finding 18: no traceback -----------------------------------------------------------------------------------------

TEXTS = [
    "",
    "[",
    "[" * 200_000,
    "9" * 5000,
    "1e999",
    "NaN",
    "Infinity",
    '"\ud800"',
    "null",
    "[]",
    "{}",
    "\x00",
    "\ufeff{}",
]


def test_security_18_an_odd_ledger_is_one_finding(kit: Path) -> None:
    document = json.loads(name_ledger_file(kit).read_text())
    texts = TEXTS + [changed(document, path, odd) for path in places(document) for odd in ODD]
    read = 0
    for text in texts:
        name_ledger_file(kit).write_text(text, errors="surrogatepass")
        found = read_or_code(lambda: read_ledger(kit))
        if isinstance(found, Ledger):
            read += 1
            assert all("/" not in job.step and ".." not in job.log.split("/") for job in found.jobs)
        else:
            assert found == "jobs-file"
    assert 0 < read < len(texts) / 4


def test_security_18_an_odd_record_is_no_record(kit: Path) -> None:
    for text in TEXTS + [changed(RECORD, [key], odd) for key in RECORD for odd in (*ODD, 10**400, "1" * 5000)]:
        (kit / "jobs/12.json").write_text(text, errors="surrogatepass")
        found = read_record(kit, "12")
        assert found is None or found.seconds >= 0
    (kit / "jobs/12.json").write_text('{"schema": 1, "job": "12", "exit_code": 0, "started": 1, "ended": 1e400}')
    assert read_record(kit, "12") is None


def test_security_18_an_odd_list_of_plans_is_one_finding(tmp_path: Path) -> None:
    document = {"schema": 1, "kits": [{"name": "a", "site": "s", "folder": "a.plan"}]}
    path = tmp_path / "kits.json"
    path.write_text(json.dumps(document))
    assert read_plan_list(tmp_path) is not None
    for text in TEXTS + [changed(document, place, odd) for place in places(document) for odd in (*ODD, "a/b", "..")]:
        path.write_text(text, errors="surrogatepass")
        found = read_or_code(lambda: read_plan_list(tmp_path))
        if isinstance(found, tuple):
            assert all("/" not in kit.folder for kit in found)
        else:
            assert found == "kits-file"


def test_security_18_an_odd_report_is_no_report(kit: Path) -> None:
    for text in TEXTS:
        (kit / "report.json").write_text(text, errors="surrogatepass")
        assert read_report(kit) is None
