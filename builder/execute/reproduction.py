"""A second build of a plan, to see whether it gives the same bytes: elsewhere, and nothing is kept but downloads."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from builder.execute.cache_maintenance import list_download_folders
from builder.execute.execution import Execution, LocalPrefix
from builder.execute.step_runner import LocalRunner
from builder.inspect.image_comparison import compare_images
from builder.layers import copies
from builder.model.finding import ConfigError, Finding, Location
from builder.model.plan import Plan, Step
from builder.model.report import Report
from builder.sif.bounded import hash_file
from builder.system.files import remove_tree, write_atomic
from builder.system.layout import AGAIN, DIFFERENT, LOGS

LIST = "verify.txt"  # every difference, in the plan folder
SHOWN = 20  # differences in a report
TOLD = 5  # differences in a message


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What a second build gave: nothing in `fault` where it was the same."""

    answer: Mapping[str, Any]
    fault: Finding | None = None


def check_comparable(plan: Plan) -> None:
    """Raise ConfigError where the product is no file that could be compared."""
    if plan.image_kind != "sif":
        message = f"the backend '{plan.backend}' makes a folder, and --reproduce compares SIF images"
        fix = "leave out --reproduce, or choose another backend"
        raise ConfigError(Finding(code="verify-folder", message=message, fix=fix))


def list_rebuild_steps(plan: Plan) -> tuple[Step, ...]:
    """The steps that make the image."""
    return tuple(step for step in plan.steps if step.kind != "smoke")


def rebuild(run: Execution, here: LocalRunner, *, image: Path) -> Reproduction:
    """Build once more in the scratch folder and hold `image` against it; raises OSError and ToolError."""
    started = time.monotonic()
    place = here.scratch / AGAIN
    place.mkdir(0o700)
    copy_plan(run.plan, run.folder, place)
    fresh = make_fresh_cache(here.options.environment, place=here.scratch / "again-cache")
    environment = {**here.options.environment, **fresh}
    second = Execution(
        plan=run.plan,
        folder=place,
        output=place / "again.sif",
        runner=replace(here, folder=place, options=replace(here.options, environment=environment)),
        progress=run.progress,
        signals=run.signals,
        versions=run.versions,
        environment=environment,
        prefix=LocalPrefix(results=tuple(run.results)),
        origin=run.origin,
    )
    run.progress.note("building again, to compare")
    try:
        if not second.run_steps(list_rebuild_steps(run.plan)):
            return make_failed_reproduction(second, log=_keep_log(run, second))
        return compare(run, second, image=image, seconds=time.monotonic() - started)
    finally:
        remove_tree(place)
        remove_tree(here.scratch / "again-cache")


def note_rebuild(run: Execution, build: Callable[[], Reproduction]) -> None:
    """Note what a second build gave; the image stays, whatever it was."""
    try:
        seen = build()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message, fix = f"the image could not be built again: {reason}", "make room and rights there, and try again"
        seen = Reproduction(
            answer={"same": False, "error": reason}, fault=Finding(code=DIFFERENT, message=message, fix=fix)
        )
    run.verified = seen.answer
    if seen.fault is not None:
        run.findings.append(seen.fault)


def apply_answer(report: Report, run: Execution) -> Report:
    """The report of an image that was there, with what a second build gave."""
    findings = (*(one for one in report.findings if one.code != DIFFERENT), *run.findings)
    return replace(report, verified=run.verified, findings=findings)


def compare(run: Execution, second: Execution, *, image: Path, seconds: float) -> Reproduction:
    """Hold `image` against what a second build has made in `seconds`; raises OSError."""
    made = second.folder / second.plan.image
    digest = second.look_inside().finish()
    same = digest == hash_file(image)
    lines = [] if same else list(compare_images(image, made))
    answer = {"same": not lines, "sha256": digest, "seconds": round(seconds, 3)}
    return _make_reproduction(run, image, lines, answer=answer)


def copy_plan(plan: Plan, folder: Path, place: Path) -> None:
    """The plan's own files, as the first build had them."""
    for path in [*(file.path for file in plan.files), *(copy.path for copy in plan.copies)]:
        copies.copy(folder / path, place, path)


def make_fresh_cache(user: Mapping[str, str], *, place: Path) -> dict[str, str]:
    """Make a cache with nothing in it but downloads; the variables by which a build uses it."""
    place.mkdir(0o700, parents=True)
    for kept in list_download_folders(user):
        (place / kept.name).symlink_to(kept.resolve())
    return {"RECIPE_CACHE_DIR": str(place), "RECIPE_FRESH": "yes"}


def _keep_log(run: Execution, second: Execution) -> Path:
    """The log of the step that failed, out of the folder that is removed."""
    name = second.results[-1].name
    log = run.folder / LOGS / f"{AGAIN}-{name}.log"
    with suppress(OSError):
        shutil.copyfile(second.runner.log(next(one for one in run.plan.steps if one.name == name)), log)
    return log


def make_failed_reproduction(second: Execution, *, log: Path) -> Reproduction:
    """What is said where there is no second image."""
    reason = second.findings[-1].message if second.findings else f"step '{second.results[-1].name}' failed"
    message = f"the image could not be built again: {reason}"
    fix = "the first image is in its place; see the log of the second build"
    fault = Finding(code=DIFFERENT, message=message, at=Location(file=str(log)), fix=fix)
    return Reproduction(answer={"same": False, "error": reason}, fault=fault)


def _make_reproduction(run: Execution, image: Path, lines: list[str], *, answer: Mapping[str, Any]) -> Reproduction:
    """The answer with what differs, of which a part is shown and all of it in a file."""
    path = run.folder / LIST
    if not lines:
        path.unlink(missing_ok=True)
        return Reproduction(answer=answer)
    write_atomic(path, "".join(f"{_escape(line)}\n" for line in lines))
    shown = [_escape(line) for line in islice(lines, SHOWN)]
    message = f"a second build gave another image than '{image}': {'; '.join(shown[:TOLD])}"
    if len(lines) > TOLD:
        message += f"; and {len(lines) - TOLD} more"
    fix = (
        f"all of it is in '{path}'; look for dates and random names in `container.run` and in what is built from source"
    )
    fault = Finding(code=DIFFERENT, message=message, at=Location(file=str(path)), fix=fix)
    return Reproduction(answer={**answer, "differences": shown, "count": len(lines), "list": LIST}, fault=fault)


def _escape(line: str) -> str:
    """A name of an image may hold anything: as one line that a terminal bears."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
