"""What the command line requests, and what becomes of it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from builder.execute.build_options import ExecutionOptions, SignalInterrupt
from builder.execute.progress import MultiProgress
from builder.model.finding import BuilderError, Finding, Location
from builder.model.plan import Plan, Step
from builder.model.recipe import WHOLE, InputChoice, Recipe
from builder.model.report import Report
from builder.model.site import Site
from builder.model.target import Context
from builder.model.text import UNTESTED, sanitize
from builder.system.layout import plan_folder

Shape = tuple[int | None, int | None]  # nodes, and devices of each; None: not said
# The word of a table for each exit code of what failed.
WORDS = {2: "refused", 3: "refused", 4: "not begun", 5: "failed", 6: "smoke test failed", 7: "open", 8: "not the same"}


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """How steps are submitted; `of_jobs` holds `VALUE` and `STEP=VALUE` by option."""

    submit: bool = False
    no_wait: bool = False
    cancel_on_interrupt: bool = False
    dependency: str = ""
    account: str = ""
    accounts: Mapping[str, str] = field(default_factory=dict)  # of sites, where `account` is not given
    of_jobs: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def find_account(self, site: str) -> str:
        """The account of jobs at a site, "" where none is given."""
        return self.account or self.accounts.get(site, "")


def write_plan_line(site: str, file: str) -> str:
    """The command that writes the plan folder of a file for a site."""
    return f"recipe plan {shlex.join([site, file])}"


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """Recipes and sites, and how to build every recipe for every site.

    `output` is the image of a single build, else the folder of all images. `parallel` is how many run at once.
    """

    sites: tuple[str, ...]
    files: tuple[Path, ...]
    choice: InputChoice = WHOLE  # what of a project is taken
    sites_folder: Path | Sequence[Path]  # those of the user's own sites
    context: Context
    options: ExecutionOptions
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    shape: Shape = (None, None)
    launch: tuple[str | None, str | None] = (None, None)  # launcher, GPU visibility; None: the site's
    output: Path | None = None
    dry_run: bool = False
    here: bool = False  # allow heavy work on a login node
    update: bool = False  # change the installation that is there
    parallel: int | None = None
    write_plan_line: Callable[[str, str], str] = write_plan_line  # with the options that were given

    @property
    def single(self) -> bool:
        """Whether it is one build."""
        return len(self.sites) == len(self.files) == 1


@dataclass(frozen=True, kw_only=True)
class Build:
    """A plan with the place of its image, whose plan folder is next to it."""

    plan: Plan
    site: Site
    recipe: Recipe
    context: Context
    image: Path
    makes_folder: bool = False  # the folder of the image is made where it is missing
    at: Path | None = None  # the plan folder, where it is not the one next to the image

    @property
    def folder(self) -> Path:
        """The plan folder."""
        return self.at or plan_folder(self.image)

    @property
    def base_at(self) -> Location:
        """What names a base image of the user's own."""
        return (
            Location(key="--base")
            if self.context.base
            else Location(file=sanitize(self.recipe.file), key="container.base")
        )

    @property
    def home(self) -> Path:
        """The recipe's folder."""
        return Path(self.recipe.folder)


Builds = Mapping[str, Build]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one build ended; `error` is what stopped it, `image` is "" where there is none."""

    name: str
    word: str
    text: str = ""
    code: int = 0
    image: str = ""
    seconds: float = 0.0
    error: BuilderError | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What stopped it, or why it was refused."""
        return self.error.findings if self.error else ()


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The outcome of every build, by name, and the signal that stopped them, if one did."""

    outcomes: Mapping[str, Outcome]
    stop: SignalInterrupt | None = None


class UI(Protocol):
    """What shows builds to the user; the command line is one."""

    def report_plan(self, name: str, build: Build) -> None:
        """A build is planned: its findings."""

    def describe_build(self, build: Build, *, steps: Sequence[Step] | None = None) -> None:
        """What a dry run would do: these steps, by default all."""

    def print_line(self, name: str, text: str) -> None:
        """Something is worth a line."""

    def report(self, name: str, report: Report) -> None:
        """A build ended with a report, which may be of a failure."""

    def choose_display(self, names: Sequence[str]) -> MultiProgress:
        """The display of builds that run here."""


Tell = Callable[[str], None]


def make_failure(name: str, error: BuilderError, *, seconds: float = 0.0) -> Outcome:
    """The outcome of a build that failed or could not begin."""
    worst = next((finding for finding in error.findings if finding.level == "error"), error.findings[0])
    word = WORDS.get(error.exit_code, "failed")
    return Outcome(name=name, word=word, text=worst.message, code=error.exit_code, error=error, seconds=seconds)


def make_outcome(name: str, report: Report, *, image: Path) -> Outcome:
    """The outcome that a report states."""
    from builder.execute.plan_executor import raise_on_failure

    try:
        raise_on_failure(report)
    except BuilderError as error:
        return make_failure(name, error, seconds=report.seconds)
    size = f", {report.image_bytes / 1e6:.0f} MB" if report.image_bytes else ""
    word = UNTESTED if report.verdict == "built" else report.status
    return Outcome(name=name, word=word, text=f"{image}{size}", image=str(image), seconds=report.seconds)
