"""A plan: the files and steps that make an image, before anything is done. Plain data, nothing of the machine in it.

A plan as JSON and back: sorted, the same bytes for the same plan, and read as strictly as it is written.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Union

from builder.model.finding import ConfigError, Finding, Location, remove_edits
from builder.model.site import Vendor
from builder.model.step_job import StepJob
from builder.model.text import MismatchError, is_plain_path, sanitize, to_dataclass
from builder.sif.bounded import parse_json


@dataclass(frozen=True)
class ShellExpr:
    """A word in which the shell expands ${NAME} where it runs, and nothing else."""

    text: str


Word = Union[str, ShellExpr]  # noqa: UP007 - used at run time on Python 3.10
StepKind = Literal["build", "save", "convert", "verify", "smoke", "run"]


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of the plan folder; `path` is relative to it, with forward slashes."""

    path: str
    text: str
    executable: bool = False


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A file or folder of the user's that is copied into the plan folder as it is."""

    source: str  # absolute, or relative to the recipe's folder
    path: str
    bundled: bool = False  # `source` is the name of something that ships with us, e.g. "smoke"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One script of the plan and what it must leave behind.

    A step succeeded when every file in `produces` is there and new, not when its script exited 0.
    """

    name: str  # unique; names the log
    kind: StepKind
    why: str  # one line for the user
    script: str  # path in the plan folder, run as `bash SCRIPT` in it
    produces: tuple[str, ...] = ()  # relative to the plan folder
    programs: tuple[str, ...] = ()  # alternatives are joined with |
    space_gib: float = 0.0  # free space that its temporary folder needs
    batch: str = ""  # the sbatch script that runs it as a job
    job: StepJob | None = None  # what that script asks for; unknown of plans that were written before 2026-11-23
    where: Literal["site", "workstation"] = "site"


@dataclass(frozen=True, kw_only=True)
class PackageDecision:
    """What became of one line of the recipe."""

    asked: str
    became: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that is needed to make and prove one image."""

    target: str  # recipe.site.backend
    recipe: str
    site: str
    backend: str
    vendor: Vendor
    image: str  # file or folder, relative to the plan folder
    image_kind: Literal["sif", "folder"]
    base: str
    steps: tuple[Step, ...]
    files: tuple[File, ...]
    copies: tuple[Copy, ...] = ()
    packages: tuple[PackageDecision, ...] = ()
    findings: tuple[Finding, ...] = ()
    expect: Mapping[str, str] = field(default_factory=dict)  # what the image must answer: vendor, torch
    tool: str = ""
    tmpdir: str = ""  # the site's temporary folder for builds; ${NAME} is expanded where the build runs


SCHEMA = 1
LIMIT = 64 * 1024 * 1024  # bytes
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)  # of a step: it names a log


def to_json(plan: Plan) -> str:
    """Write a plan as JSON text that ends with a newline."""
    content = {"schema": SCHEMA, **remove_edits(dataclasses.asdict(plan))}
    for step in content["steps"]:
        if step["job"] is None:
            del step["job"]  # as plans without it were written: their digests stay
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str | bytes, *, file: str = "plan.json") -> Plan:
    """Read a plan again; raises ConfigError with the first fault and the path of its key."""
    try:
        content = parse_json(text, limit=LIMIT)
    except ValueError as error:
        raise _fault(f"the plan is not JSON: {sanitize(str(error))}", file=file, key="") from None
    if not isinstance(content, dict):
        raise _fault("the plan is not a JSON object", file=file, key="")
    try:
        plan = to_dataclass(Plan, content, schema=SCHEMA, what="plan")
    except MismatchError as error:
        raise _fault(error.message, file=file, key=error.key) from None
    for key, said in _find_faults(plan):
        raise _fault(said, file=file, key=key)
    return plan


def _find_faults(plan: Plan) -> Iterator[tuple[str, str]]:
    """What leads out of the plan folder, or has a name that a log cannot have."""
    # A plan around an image that is there already names it by its absolute path, and makes nothing.
    made = any(step.produces and step.kind not in ("smoke", "verify") for step in plan.steps)
    paths = [("image", plan.image)] if made or not plan.image.startswith("/") else []
    for number, step in enumerate(plan.steps):
        key = f"steps[{number}]"
        if not _NAME.fullmatch(step.name):
            yield f"{key}.name", f"'{sanitize(step.name)}' cannot be the name of a step"
        paths += [(f"{key}.script", step.script), *([(f"{key}.batch", step.batch)] if step.batch else [])]
        paths += [(f"{key}.produces[{at}]", name) for at, name in enumerate(step.produces)]
    paths += [(f"files[{number}].path", file.path) for number, file in enumerate(plan.files)]
    paths += [(f"copies[{number}].path", copy.path) for number, copy in enumerate(plan.copies)]
    for key, path in paths:
        if not is_plain_path(path):
            yield key, f"'{sanitize(path)}' is not a plain path inside the plan folder"


def _fault(message: str, *, file: str, key: str) -> ConfigError:
    fix = "write the plan folder again with `recipe plan`"
    return ConfigError(Finding(code="plan-faulty", message=message, at=Location(file=file, key=sanitize(key)), fix=fix))
