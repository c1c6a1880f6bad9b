"""A plan: the files and steps that make an image, as plain data without properties of this machine.

Its JSON form is sorted: the same plan gives the same bytes. It is read as strictly as it is written.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Union

from builder.model.finding import ConfigError, Finding, Location, remove_edits
from builder.model.site import Vendor
from builder.model.text import MismatchError, is_plain_path, sanitize, to_dataclass
from builder.sif.bounded import parse_json


@dataclass(frozen=True, kw_only=True)
class StepJob:
    """One job: `gpus` is the site's own option for them (gpus-per-node=4), `options` are further ones of the site.

    In `log`, Slurm replaces %x by the name, %j by the number of the job, %A and %a by those of an array and its task.
    """

    name: str
    log: str = "%x-%j.log"
    nodes: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int = 0  # 0: what the site gives
    gpus: str = ""
    minutes: int = 0  # the time limit, 0: that of the partition
    notice: int = 0  # seconds before the time limit at which the script gets SIGTERM
    partition: str = ""
    memory: str = ""  # of a node, as sbatch reads it: 64G
    account: str = ""
    array: str = ""  # which tasks, and how many at a time: 0-7%4
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def time(self) -> str:
        """The time limit as HH:MM:SS, "" where there is none."""
        return f"{self.minutes // 60:02d}:{self.minutes % 60:02d}:00" if self.minutes else ""

    @property
    def sbatch_options(self) -> dict[str, str]:
        """The long options of sbatch without their dashes, in the order of a script; "" for one without a value."""
        gpus, _, count = self.gpus.partition("=")
        found = {
            "job-name": self.name,
            "output": self.log,
            "array": self.array,
            "open-mode": "append",  # a job that Slurm starts again keeps what its first run said
            "signal": signal_option(self.notice) if self.notice else "",
            "nodes": str(self.nodes),
            "ntasks-per-node": str(self.tasks_per_node),
            "cpus-per-task": str(self.cpus_per_task or ""),
            gpus: count,
            "partition": self.partition,
            "mem": self.memory,
        }
        # An option without a value is one of the site's: exclusive.
        given = {name: value for name, value in found.items() if name and (value or name == gpus)}
        last = {"time": self.time, "account": self.account}
        return {**given, **self.options, **{name: value for name, value in last.items() if value}}


def signal_option(seconds: int) -> str:
    """The value of --signal: Slurm signals the job script, which passes it on (see record.sh)."""
    return f"B:TERM@{seconds}"


@dataclasses.dataclass(frozen=True)
class ShellExpr:
    """A word in which the shell expands ${NAME} at run time, and nothing else."""

    text: str


Word = Union[str, ShellExpr]  # noqa: UP007 - used at run time on Python 3.10
StepKind = Literal["build", "save", "convert", "verify", "smoke", "run"]


@dataclass(frozen=True, kw_only=True)
class PlanFile:
    """A file of the plan folder; `path` is relative to it, with forward slashes."""

    path: str
    text: str
    executable: bool = False


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A file or folder of the user that is copied into the plan folder unchanged."""

    source: str  # absolute, or relative to the recipe's folder
    path: str
    bundled: bool = False  # `source` is the name of a folder of recipe, e.g. "smoke"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One script of the plan and its outputs.

    A step succeeds if every file in `produces` exists and is new; the exit status of the script does not count.
    """

    name: str  # unique; names the log
    kind: StepKind
    why: str  # one line for the user
    script: str  # path in the plan folder, run as `bash SCRIPT` in it
    produces: tuple[str, ...] = ()  # relative to the plan folder
    programs: tuple[str, ...] = ()  # alternatives are joined with |
    space_gib: float = 0.0  # required free space in the temporary folder
    batch: str = ""  # the sbatch script that runs it as a job
    job: StepJob | None = None  # what that script asks for; unknown of plans that were written before 2026-11-23
    where: Literal["site", "workstation"] = "site"

    def name_output(self, image: str, name: str) -> Step:
        """The step as it is shown where the plan's image has another name."""
        return dataclasses.replace(self, why=self.why.replace(image, name)) if image else self


@dataclass(frozen=True, kw_only=True)
class PackageDecision:
    """What happens to one line of the recipe, and why."""

    asked: str
    became: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything needed to build and test one image."""

    target: str  # recipe.site.backend
    recipe: str
    site: str
    backend: str
    vendor: Vendor
    image: str  # file or folder, relative to the plan folder
    image_kind: Literal["sif", "folder"]
    base: str
    steps: tuple[Step, ...]
    files: tuple[PlanFile, ...]
    copies: tuple[Copy, ...] = ()
    packages: tuple[PackageDecision, ...] = ()
    findings: tuple[Finding, ...] = ()
    expect: Mapping[str, str] = field(default_factory=dict)  # expected answers of the image: vendor, torch
    tool: str = ""
    tmpdir: str = ""  # the site's temporary folder for builds; ${NAME} is expanded during the build


SCHEMA = 1
LIMIT = 64 * 1024 * 1024  # bytes
STEP_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)  # of a step, and so of its log


def to_json(plan: Plan) -> str:
    """Write a plan as JSON text that ends with a newline."""
    content = {"schema": SCHEMA, **remove_edits(dataclasses.asdict(plan))}
    for step in content["steps"]:
        if step["job"] is None:
            del step["job"]  # as plans without it were written: their digests stay
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str | bytes, *, file: str = "plan.json") -> Plan:
    """Read a plan from JSON; raises ConfigError with the first fault and the path of its key."""
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
    """Find paths outside the plan folder and step names that cannot be file names."""
    # A plan for an existing image has its absolute path and builds nothing.
    made = any(step.produces and step.kind not in ("smoke", "verify") for step in plan.steps)
    paths = [("image", plan.image)] if made or not plan.image.startswith("/") else []
    for number, step in enumerate(plan.steps):
        key = f"steps[{number}]"
        if not STEP_NAME.fullmatch(step.name):
            yield f"{key}.name", f"'{sanitize(step.name)}' cannot be the name of a step"
        paths += [(f"{key}.script", step.script), *([(f"{key}.batch", step.batch)] if step.batch else [])]
        paths += [(f"{key}.produces[{at}]", name) for at, name in enumerate(step.produces)]
    paths += [(f"files[{number}].path", file.path) for number, file in enumerate(plan.files)]
    paths += [(f"copies[{number}].path", copy.path) for number, copy in enumerate(plan.copies)]
    for key, path in paths:
        if not is_plain_path(path):
            yield key, f"'{sanitize(path)}' is not a plain path inside the plan folder"


def choose_program(*, torch: bool, imports: Sequence[str] = (), has_python: bool = True) -> str:
    """A command that every image with these packages can run, as words of a shell."""
    if torch:
        return "python3 -c 'import torch; print(torch.__version__)'"
    if imports:
        return f"python3 -c {shlex.quote(f'import {imports[0]}')}"
    return "python3 --version" if has_python else "cat /etc/os-release"


def _fault(message: str, *, file: str, key: str) -> ConfigError:
    fix = "write the plan folder again with `recipe plan`"
    return ConfigError(Finding(code="plan-faulty", message=message, at=Location(file=file, key=sanitize(key)), fix=fix))
