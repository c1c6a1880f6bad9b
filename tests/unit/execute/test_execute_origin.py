"""What a report says of its plan and its image: an image of another plan, or another image, is never up to date."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.execute import plan_folder as folder_module
from builder.execute import report_file
from builder.execute.folder_lock import lock_folder
from builder.execute.plan_folder import lock_plan_folder, write_plan
from builder.execute.report_file import explain_not_current, find_current_result, read_report, write_report
from builder.inspect.origin import (
    Origin,
    compute_identity,
    compute_plan_digest,
    compute_sources_identity,
    find_old_product,
    find_origin,
    read_image_report,
    read_origin,
    restore_report,
)
from builder.inspect.origin import read_plan_digest as plan_of_folder
from builder.model.finding import BuilderError, ConfigError, Finding, ToolError
from builder.model.plan import Copy, Plan, PlanFile
from builder.model.report import Report, SmokeCheck, StepResult
from builder.report.records import read_results
from builder.sif.bounded import hash_file
from builder.slurm import submitted_jobs
from builder.slurm.ledger import Ledger
from builder.system.layout import KEPT_FILE, OLD_FILE, PLAN_FILE, REPORT_FILE, SOURCES_FILE

PlanOf = Callable[..., Plan]


class Place:
    """A plan folder with an image that was built in it, and the recipe's folder."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.home = plan, folder
        self.kit, self.image = folder / "x.plan", folder / "x.sif"
        (folder / "notes.txt").write_text("notes")
        (folder / "base.sif").write_text("base")
        write_plan(plan, self.kit, recipe_folder=folder)
        self.image.write_bytes(b"an image")
        self.report(read_origin(self.kit, plan))

    def report(self, origin: Origin) -> None:
        steps = tuple(StepResult(name=step.name, status="ok", seconds=1.0) for step in self.plan.steps)
        steps = (*steps, StepResult(name="smoke", status="ok", seconds=1.0))
        report = Report(
            target="mine.own.local.layers", status="passed", image=str(self.image.resolve()), steps=steps,
            plan=origin.plan, sources=origin.sources, identity=compute_identity(self.image),
            image_bytes=self.image.stat().st_size, image_sha256=hash_file(self.image),
        )  # fmt: skip
        write_report(report, self.kit)

    def current(self, plan: Plan) -> bool:
        found = find_current_result(plan, folder=self.kit, output=self.image, recipe_folder=self.home, no_smoke=False)
        return found is not None


@pytest.fixture
def place(plan_of: PlanOf, tmp_path: Path) -> Place:
    copies = (Copy(source="notes.txt", path="image/root/opt/notes.txt"),)
    plan = plan_of(copies=copies)
    return Place(replace(plan, base=str(tmp_path / "base.sif")), tmp_path)


def other_than(plan: Plan) -> Plan:
    return replace(plan, files=(*plan.files, PlanFile(path="image/requirements.txt", text="six==1.17.0\n")))


def test_fault_01_an_image_of_this_plan_is_up_to_date(place: Place) -> None:
    assert place.current(place.plan)


@pytest.mark.parametrize("status", ["interrupted", "failed", "smoke-failed"])
def test_an_image_that_stays_keeps_its_report(place: Place, status: Any) -> None:
    before = (place.kit / REPORT_FILE).read_text()
    other, failed = other_than(place.plan), place.home / "x.sif.failed"
    failed.write_bytes(b"bad image")
    for _ in range(2):
        write_plan(other, place.kit, recipe_folder=place.home)
        image = str(failed) if status == "smoke-failed" else ""
        write_report(
            Report(target="x", status=status, image=image, steps=(), plan=compute_plan_digest(other)), place.kit
        )
    kept, is_kept = read_image_report(place.kit, place.image)
    assert is_kept
    assert kept == json.loads(before)
    assert place.current(place.plan)
    assert not place.current(other)
    write_plan(place.plan, place.kit, recipe_folder=place.home)
    restore_report(place.kit)
    assert json.loads((place.kit / REPORT_FILE).read_text()) == json.loads(before)
    assert not (place.kit / KEPT_FILE).exists()


def test_a_kept_report_names_its_own_recipe(place: Place) -> None:
    place.report(read_origin(place.kit, place.plan))
    write_plan(replace(other_than(place.plan), recipe="other"), place.kit, recipe_folder=place.home)
    write_report(Report(target="other.local.layers", status="failed", image="", steps=()), place.kit)
    found = read_results(place.image)
    assert (found.status, found.facts["recipe"], found.packages) == ("built", "mine.own", {})


def test_a_kept_report_is_of_no_other_image(place: Place) -> None:
    write_plan(other_than(place.plan), place.kit, recipe_folder=place.home)
    write_report(Report(target="x", status="failed", image="", steps=()), place.kit)
    place.image.write_bytes(b"another image")
    assert not read_image_report(place.kit, place.image)[1]
    assert not place.current(place.plan)


def test_a_build_that_passes_removes_the_kept_report(place: Place) -> None:
    other = other_than(place.plan)
    write_plan(other, place.kit, recipe_folder=place.home)
    assert (place.kit / KEPT_FILE).exists()
    place.image.write_bytes(b"a new image")
    place.report(read_origin(place.kit, other))
    assert not (place.kit / KEPT_FILE).exists()
    assert place.current(other)


@pytest.fixture
def ten_seconds() -> Iterator[None]:
    """What waits for a pipe is ended, by no error that anybody expects."""

    def ended(*_: object) -> None:
        raise AssertionError("it waits for a pipe")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put(path: Path, kind: str) -> None:
    """Put something else in the place of a file of a plan folder."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "deep":
        path.write_text("[" * 200_000)
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)


@pytest.mark.property
@pytest.mark.parametrize("kind", ["pipe", "deep", "huge"])
@pytest.mark.parametrize("name", [KEPT_FILE, REPORT_FILE, SOURCES_FILE, OLD_FILE, PLAN_FILE])
@pytest.mark.usefixtures("ten_seconds")
def test_security_15_odd_files_of_a_plan_folder_are_read_within_bounds(place: Place, name: str, kind: str) -> None:
    """A plan folder that came as an archive is the user's own, and what is in it is a stranger's."""
    put(place.kit / name, kind)
    assert place.current(place.plan) == (name in (KEPT_FILE, OLD_FILE, SOURCES_FILE))
    assert explain_not_current(place.plan, folder=place.kit, output=place.image, recipe_folder=place.home) == ("", "")
    assert plan_of_folder(place.kit) == ("" if name == PLAN_FILE else compute_plan_digest(place.plan))
    assert find_origin(place.plan, (), folder=place.kit) is not None
    (place.home / "notes.txt").write_text("new")
    if name != PLAN_FILE or kind != "pipe":  # a folder without a plan is somebody else's
        write_plan(other_than(place.plan), place.kit, recipe_folder=place.home, force=True)


def test_fault_01_a_plan_that_was_replaced_makes_the_old_report_old(place: Place) -> None:
    other = other_than(place.plan)
    write_plan(other, place.kit, recipe_folder=place.home)
    assert not place.current(other)
    assert not place.current(place.plan)
    write_plan(place.plan, place.kit, recipe_folder=place.home)
    assert place.current(place.plan)


def test_fault_01_findings_and_the_place_of_the_recipe_are_not_the_plan(place: Place) -> None:
    told = replace(place.plan, findings=(Finding(code="x", message="of /home/somebody", fix="", level="note"),))
    assert compute_plan_digest(told) == compute_plan_digest(place.plan)
    assert compute_plan_digest(other_than(place.plan)) != compute_plan_digest(place.plan)


@pytest.mark.parametrize("name", ["notes.txt", "base.sif"])
def test_fault_01_a_file_that_was_changed_under_its_old_time_is_another(place: Place, name: str) -> None:
    path = place.home / name
    before = path.stat()
    path.write_bytes(path.read_bytes().swapcase())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert not place.current(place.plan)


def test_fault_01_a_file_that_changes_while_the_image_is_built_is_another(plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of(copies=(Copy(source="notes.txt", path="image/root/opt/notes.txt"),))
    place = Place(plan, tmp_path)
    origin = read_origin(place.kit, plan)
    (tmp_path / "notes.txt").write_text("later")
    place.report(origin)  # written after the change, of what was copied before it
    assert not place.current(plan)


@pytest.mark.parametrize("how", ["another image", "same size", "gone", "a folder"])
def test_fault_01_another_image_is_not_the_one_of_the_report(place: Place, how: str) -> None:
    if how in ("gone", "a folder"):
        place.image.unlink()
    if how == "a folder":
        place.image.mkdir()
    elif how != "gone":
        text = b"of another size" if how == "another image" else b"An Image"
        place.image.write_bytes(text)
        os.utime(place.image, (1, 1))
    assert not place.current(place.plan)


def test_fault_01_the_same_bytes_put_back_are_the_image(place: Place, tmp_path: Path) -> None:
    shutil.copy(place.image, tmp_path / "kept")
    place.image.unlink()
    shutil.copy(tmp_path / "kept", place.image)
    assert place.current(place.plan)


@pytest.mark.parametrize("key", ["plan", "sources", "identity"])
def test_fault_01_a_report_without_its_plan_says_nothing(place: Place, key: str) -> None:
    path = place.kit / "report.json"
    path.write_text(path.read_text().replace(f'"{key}"', '"else"'))
    assert not place.current(place.plan)


def test_fault_01_a_step_left_out_has_the_product_of_the_plan_before(place: Place) -> None:
    (place.kit / "image.sif").write_text("made")
    product = replace(place.plan.steps[0], produces=("image.sif",))
    plan = replace(place.plan, steps=(product,))
    write_plan(plan, place.kit, recipe_folder=place.home)
    other = other_than(plan)
    (place.kit / "image.sif").write_text("made of plan")
    write_plan(other, place.kit, recipe_folder=place.home)
    sources = compute_sources_identity(other, recipe_folder=place.home, folder=place.kit)
    assert find_old_product(other, (), folder=place.kit, sources=sources) == "image.sif"
    assert find_old_product(other, other.steps, folder=place.kit, sources=sources) == ""
    assert find_origin(other, (), folder=place.kit) == Origin()
    assert find_origin(other, other.steps, folder=place.kit).plan == compute_plan_digest(other)
    (place.kit / "image.sif").unlink()
    (place.kit / "image.sif").write_text("made of the other")
    assert find_origin(other, (), folder=place.kit).plan == compute_plan_digest(other)
    assert find_old_product(other, (), folder=place.kit, sources=sources) == ""
    assert find_old_product(other, (), folder=place.kit, sources="other files") == "image.sif"
    assert find_old_product(plan, (), folder=place.kit, sources=sources) == "image.sif"


@pytest.mark.property
@pytest.mark.parametrize("stop", range(1, 12))
def test_fault_01_every_rename_leaves_the_folder_known_as_old(
    place: Place, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends between two renames leaves no folder in which the other plan is up to date."""
    other = other_than(place.plan)
    renames = 0
    rename = os.replace

    class Killed(BaseException):
        pass

    def counted(*words: Any, **more: Any) -> None:
        nonlocal renames
        renames += 1
        if renames == stop:
            raise Killed
        rename(*words, **more)

    monkeypatch.setattr(os, "replace", counted)
    with contextlib.suppress(Killed):
        write_plan(other, place.kit, recipe_folder=place.home)
    assert not place.current(other)


def test_fault_01_jobs_are_of_the_plan_that_they_were_submitted_with(place: Place) -> None:
    """Another plan has taken the folder since: what the jobs made is of neither, and so not up to date."""
    ledger = Ledger(site="x", kind="build", output=str(place.image), origin=read_origin(place.kit, place.plan))
    assert submitted_jobs._find_origin(ledger, place.plan, folder=place.kit) == ledger.origin
    other = other_than(place.plan)
    write_plan(other, place.kit, recipe_folder=place.home)
    assert submitted_jobs._find_origin(ledger, other, folder=place.kit) == Origin()
    place.report(submitted_jobs._find_origin(ledger, other, folder=place.kit))
    assert not place.current(other)
    assert not place.current(place.plan)


def test_fault_01_an_image_in_the_way_is_told_by_its_plan(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """`read_image_plan` reads the SIF itself: tests/engines/test_origin.py."""

    def said(plan: Plan, *, of: Plan) -> str:
        monkeypatch.setattr(report_file, "read_image_plan", lambda _image: compute_plan_digest(of))
        why, fix = explain_not_current(plan, folder=place.kit, output=place.image, recipe_folder=place.home)
        return f"{why}; {fix}" if fix else why

    assert said(other_than(place.plan), of=place.plan) == "it was built from another plan"
    assert said(place.plan, of=place.plan).endswith(
        "and has not passed its smoke test; give --from smoke to test it again"
    )
    skipped = (StepResult(name="smoke", status="skipped", seconds=0.0),)
    report = read_report(place.kit)
    assert report is not None
    write_report(replace(report, steps=skipped), place.kit)
    assert said(place.plan, of=place.plan) == (
        "it was built from this plan, and was not tested; give --from smoke to test it"
    )
    write_plan(other_than(place.plan), place.kit, recipe_folder=place.home)
    assert said(place.plan, of=place.plan).startswith("it was built from this plan, and its plan folder holds another")
    write_plan(place.plan, place.kit, recipe_folder=place.home)
    (place.home / "notes.txt").write_text("later")
    assert said(place.plan, of=place.plan).startswith("a file that went into it")
    (place.home / "notes.txt").unlink()
    for name in (REPORT_FILE, KEPT_FILE):
        (place.kit / name).unlink()
    assert said(place.plan, of=place.plan).endswith("before it could write its report")


def test_an_image_without_a_check_has_not_passed(place: Place) -> None:
    def said(report: Report, *, no_smoke: bool = False) -> str | None:
        write_report(report, place.kit)
        return find_current_result(
            place.plan, folder=place.kit, output=place.image, recipe_folder=place.home, no_smoke=no_smoke
        )

    report = read_report(place.kit)
    assert report is not None
    check = SmokeCheck(name="mnist: accuracy", ok=True, measured="0.97", expected=">= 0.9")
    assert said(replace(report, checks=(check,))) == "passed its smoke test"
    assert said(report) == "was not tested: its smoke test has no workload"
    skipped = replace(report, steps=(StepResult(name="smoke", status="skipped", seconds=0.0),))
    assert said(skipped) is None
    assert said(skipped, no_smoke=True) == "was not tested"
    assert (report.verdict, replace(report, checks=(check,)).verdict) == ("built", "passed")
    assert replace(report, status="failed").verdict == "failed"


def in_a_thread(call: Callable[[], object]) -> BaseException | None:
    """What a call raises in a thread, which to a lock is as good as a process."""
    found: list[BaseException] = []

    def work() -> None:
        try:
            call()
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0] if found else None


def code_of(error: BaseException | None) -> str:
    assert isinstance(error, BuilderError), error
    return error.findings[0].code


def test_fault_06_a_plan_is_held_from_its_writing_on(place: Place) -> None:
    other = other_than(place.plan)
    with lock_plan_folder(place.plan, place.kit, recipe_folder=place.home):
        error = in_a_thread(lambda: write_plan(other, place.kit, recipe_folder=place.home))
        assert code_of(error) == "build-running"
        assert read_origin(place.kit, place.plan).plan == compute_plan_digest(place.plan)
        with lock_folder(place.kit):  # the same build
            pass
        assert code_of(in_a_thread(lambda: lock_folder(place.kit).__enter__())) == "build-running"
    assert in_a_thread(lambda: write_plan(other, place.kit, recipe_folder=place.home)) is None


def test_fault_06_of_two_makers_of_a_new_folder_one_is_refused(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has seen that there is no folder, and comes to its rename after the first."""
    kit = tmp_path / "new.plan"
    with lock_plan_folder(place.plan, kit, recipe_folder=place.home):
        monkeypatch.setattr(folder_module, "_check_folder", lambda folder: (folder / "no").exists())
        error = in_a_thread(lambda: write_plan(other_than(place.plan), kit, recipe_folder=place.home))
        assert code_of(error) == "build-running"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".new")] == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_fault_05_a_plan_folder_on_a_full_disk(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(folder_module, "_fill", full)
    with pytest.raises(ToolError) as caught:
        write_plan(place.plan, tmp_path / "new.plan", recipe_folder=place.home)
    (finding,) = caught.value.findings
    assert finding.message == f"the plan folder '{tmp_path}/new.plan' cannot be written: {os.strerror(number).lower()}"
    assert finding.fix == f"make room on the disk of '{tmp_path}', or choose another folder with -o"


def test_fault_05_rights_are_not_space(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "there")

    monkeypatch.setattr(folder_module, "_fill", refused)
    with pytest.raises(ConfigError) as caught:
        write_plan(place.plan, tmp_path / "new.plan", recipe_folder=place.home)
    assert caught.value.findings[0].message.endswith("cannot be written: permission denied")


def test_fault_01_the_plan_folder_among_the_files_is_no_part_of_them(plan_of: PlanOf, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("a")
    plan, kit = plan_of(copies=(Copy(source="src", path="image/root/src"),)), tmp_path / "src" / "x.plan"
    write_plan(plan, kit, recipe_folder=tmp_path)
    first = read_origin(kit, plan)
    write_plan(plan, kit, recipe_folder=tmp_path)
    assert read_origin(kit, plan) == first
    assert not (kit / ".old.json").exists()
    (tmp_path / "src" / "b.py").write_text("b")
    write_plan(plan, kit, recipe_folder=tmp_path)
    assert read_origin(kit, plan).plan == first.plan
    assert read_origin(kit, plan).sources != first.sources
