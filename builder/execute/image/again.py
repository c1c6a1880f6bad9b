"""A second build of a plan, to see whether it gives the same bytes: elsewhere, and nothing is kept but downloads."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from builder.execute.cache import cache_of
from builder.execute.carrier import Here
from builder.execute.comparing.images import compare_images
from builder.execute.digest import sha256_of
from builder.execute.names import DIFFERENT, LOGS
from builder.execute.run import Lead, Run
from builder.execute.tree import remove_tree, write_whole
from builder.model.finding import ConfigError, Finding, Place
from builder.model.plan import Plan, Step

LIST = "verify.txt"  # every difference, in the plan folder
SHOWN = 20  # differences in a report
TOLD = 5  # differences in a message


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What a second build gave: nothing in `fault` where it was the same."""

    answer: Mapping[str, Any]
    fault: Finding | None = None


def check_comparable(plan: Plan) -> None:
    """Raise ConfigError where the product is no file that could be compared."""
    if plan.image_kind != "sif":
        message = f"the backend '{plan.backend}' makes a folder, and --verify compares SIF images"
        fix = "leave out --verify, or choose another backend"
        raise ConfigError(Finding(code="verify-folder", message=message, fix=fix))


def again_steps(plan: Plan) -> tuple[Step, ...]:
    """The steps that make the image."""
    return tuple(step for step in plan.steps if step.kind != "smoke")


def build_again(run: Run, here: Here, *, image: Path) -> Verified:
    """Build once more in the scratch folder and hold `image` against it; raises OSError and ToolError."""
    started = time.monotonic()
    place = here.scratch / "again"
    _copy(run.plan, run.folder, place)
    environment = _fresh(here.options.environment, place=here.scratch / "again-cache")
    second = Run(
        plan=run.plan,
        folder=place,
        output=place / "again.sif",
        carrier=replace(here, folder=place, options=replace(here.options, environment=environment)),
        progress=run.progress,
        signals=run.signals,
        versions=run.versions,
        environment=environment,
        went_before=Lead(results=tuple(run.results)),
    )
    run.progress.note("building again, to compare")
    try:
        if not second.lead(again_steps(run.plan)):
            return _failed(run, second)
        made = place / run.plan.image
        digest = second.look_inside().settle()
        own = sha256_of(image)
        lines = [] if digest == own else list(compare_images(image, made, environment=environment))
        answer = {"same": not lines, "sha256": digest, "seconds": round(time.monotonic() - started, 3)}
        return _told(run, image, lines, answer=answer)
    finally:
        remove_tree(place)
        remove_tree(here.scratch / "again-cache")


def _copy(plan: Plan, folder: Path, place: Path) -> None:
    """The plan's own files, as the first build had them."""
    for path in [*(file.path for file in plan.files), *(copy.path for copy in plan.copies)]:
        source, target = folder / path, place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)


def _fresh(user: Mapping[str, str], *, place: Path) -> dict[str, str]:
    """An environment in which nothing is in the cache but downloads."""
    own, store = cache_of(user)
    place.mkdir(parents=True)
    (own / "uv").mkdir(parents=True, exist_ok=True)
    for kept in own.iterdir():
        if kept.name != store and kept.is_dir():
            (place / kept.name).symlink_to(kept.resolve())
    return {**user, "RECIPE_CACHE_DIR": str(place), "RECIPE_FRESH": "yes"}


def _failed(run: Run, second: Run) -> Verified:
    step = second.results[-1]
    log = run.folder / LOGS / f"again-{step.name}.log"
    with suppress(OSError):
        shutil.copyfile(second.carrier.log(next(one for one in run.plan.steps if one.name == step.name)), log)
    reason = second.findings[-1].message if second.findings else f"step '{step.name}' failed"
    message = f"the image could not be built again: {reason}"
    fix = "the first image is in its place; see the log of the second build"
    fault = Finding(code=DIFFERENT, message=message, at=Place(file=str(log)), fix=fix)
    return Verified(answer={"same": False, "error": reason}, fault=fault)


def _told(run: Run, image: Path, lines: list[str], *, answer: Mapping[str, Any]) -> Verified:
    """The answer with what differs, of which a part is shown and all of it in a file."""
    path = run.folder / LIST
    if not lines:
        path.unlink(missing_ok=True)
        return Verified(answer=answer)
    write_whole(path, "".join(f"{_plain(line)}\n" for line in lines))
    shown = [_plain(line) for line in islice(lines, SHOWN)]
    message = f"a second build gave another image than '{image}': {'; '.join(shown[:TOLD])}"
    if len(lines) > TOLD:
        message += f"; and {len(lines) - TOLD} more"
    fix = (
        f"all of it is in '{path}'; look for dates and random names in `container.run` and in what is built from source"
    )
    fault = Finding(code=DIFFERENT, message=message, at=Place(file=str(path)), fix=fix)
    return Verified(answer={**answer, "differences": shown, "count": len(lines), "list": LIST}, fault=fault)


def _plain(line: str) -> str:
    """A name of an image may hold anything: as one line that a terminal bears."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
