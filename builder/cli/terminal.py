"""Output of builds: findings, progress, verdicts, and a table of several."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from builder.cli.output import color_verdict, color_word, echo, emit, format_columns, show_findings, uses_color
from builder.cli.typed import write_path
from builder.execute.progress import (
    MultiProgress,
    Progress,
    SingleProgress,
    choose_multi_progress,
    choose_progress,
)
from builder.model.finding import Finding
from builder.model.plan import Plan, Step, choose_program
from builder.model.report import Report
from builder.model.text import UNTESTED, escape_line, format_clock, to_dict, to_list, to_number, to_text
from builder.pipeline.request import Build, Outcome, Outcomes
from builder.system.layout import PROOF


class Terminal:
    """Prints builds: several with a name before each line and a table at the end."""

    def __init__(self, *, single: bool = True, verbose: bool = False, quiet: bool = False, notes: bool = False) -> None:
        """`notes`: show findings of that level too."""
        self.single, self.verbose, self.quiet, self.notes = single, verbose, quiet, notes
        self._builds: dict[str, Build] = {}
        self._rows: MultiProgress | None = None  # of several builds that run

    def report_plan(self, name: str, build: Build) -> None:
        """Print the findings; notes are in the plan's README and in `recipe check`."""
        self._builds[name] = build
        if self.quiet:
            return
        shown = [finding for finding in build.plan.findings if finding.level != "note" or self.notes]
        self.print_findings(name, shown)

    def print_findings(self, name: str, findings: Iterable[Finding]) -> None:
        """Print findings, with the build's name above them if there are several."""
        found = list(findings)
        if found and not self.single:
            echo(f"{escape_line(name)}:", err=True)
        show_findings(found)

    def describe_build(self, build: Build, *, steps: Sequence[Step] | None = None) -> None:
        """Print what a build would do: these steps, by default all."""
        echo(describe(build.plan, image=build.image, folder=build.folder, steps=steps))

    def print_line(self, name: str, text: str) -> None:
        """Print a line, above live rows with their build's name."""
        if self.quiet:
            return
        if self._rows is not None:
            self._rows.get_progress(name).note(text)
        else:
            echo(text if self.single else f"{name}  {text}", err=True)

    def report(self, name: str, report: Report) -> None:
        """Print the verdict of a single build; several have a table."""
        del name
        if self.single and not self.quiet:
            echo(color_verdict(summarize_build(report), err=True), err=True)

    def choose_display(self, names: Sequence[str]) -> MultiProgress:
        """Choose the display of builds that run here."""
        if self.single:
            return SingleProgress(self.choose_progress())
        width = max(map(len, names), default=0)
        self._rows = choose_multi_progress(
            sys.stderr, width=width, environment=os.environ, quiet=self.quiet, verbose=self.verbose, color=uses_color()
        )
        return self._rows

    def choose_progress(self) -> Progress:
        """Choose how a single build shows its steps."""
        return choose_progress(
            sys.stderr, verbose=self.verbose, quiet=self.quiet, color=uses_color(), environment=os.environ
        )

    def conclude(self, ended: Outcomes, *, rows: bool = True, paths: bool = True) -> None:
        """Print what failed and why, then the table and the images' `paths`, and exit with the worst exit code.

        A single build raises the exception that stopped it. `rows`: print the table of several.
        """
        outcomes = list(ended.outcomes.values())
        if self.single and ended.stop is not None:
            raise ended.stop
        for error in [outcome.error for outcome in outcomes if self.single and outcome.error is not None]:
            raise error
        self._rows = None
        for outcome in outcomes:
            self.print_findings(outcome.name, outcome.findings)
        if rows and not self.single and not self.quiet:
            echo(format_columns(list(_make_rows(outcomes))), err=True)
        for outcome in outcomes:
            if outcome.image and paths:
                emit(outcome.image)
                if self.single and not self.quiet and outcome.name in self._builds:
                    echo("\n".join(_make_lines_here(self._builds[outcome.name])), err=True)
        if ended.stop is not None:
            raise ended.stop
        code = max((outcome.code for outcome in outcomes), default=0)
        if code:
            raise click.exceptions.Exit(code)


def _make_rows(outcomes: Sequence[Outcome]) -> Iterator[list[str]]:
    yield ["build", "verdict", "time", "image"]
    for outcome in outcomes:
        taken = format_clock(outcome.seconds) if outcome.seconds else "-"
        yield [outcome.name, color_word(outcome.word, err=True), taken, outcome.text or "-"]


def _make_lines_here(build: Build) -> list[str]:
    from builder.execute.machine import is_elsewhere

    return make_next_lines(build, elsewhere=is_elsewhere(build.site, environment=os.environ))


def make_next_lines(build: Build, *, elsewhere: bool = False) -> list[str]:
    """The commands for a new image, one on each line; `elsewhere` says that this is no machine of the site."""
    site, image, recipe = build.site.name, shlex.quote(write_path(build.image)), build.recipe
    program = choose_program(
        torch=bool(build.plan.expect.get("torch")),
        imports=recipe.container.smoke.imports,
        has_python=bool(recipe.conda or recipe.pip),
    )
    here = "--here " if elsewhere else ""
    lines = [f"recipe run {here}{site} {image} -- {program}", f"recipe report {image}"]
    if build.site.scheduler.kind == "slurm" and not elsewhere:
        name = build.context.account or ("NAME" if build.site.scheduler.account == "required" else "")
        account = f" --account={shlex.quote(name)}" if name else ""
        lines.append(f"recipe run {site} {image} --submit --nodes 2{account} -- {program}")
    else:
        lines.append(f"recipe inspect {image}")
    return [f"next: {escape_line(line)}" for line in lines]


def describe(plan: Plan, *, image: Path, folder: Path, steps: Sequence[Step] | None = None) -> str:
    """Describe what a build would do: these steps with their numbers in the plan, by default all."""
    lines = [f"{plan.target}: {image}", f"  base image  {plan.base}"]
    if plan.expect.get("torch"):
        lines.append(f"  torch       {plan.expect['torch']}")
    lines += [f"  plan        {folder}/ ({len(plan.files)} files, written by a build or by `recipe plan`)"]
    for at, step in enumerate(plan.steps, start=1):
        if steps is not None and step not in steps:
            continue
        job = f" (as a job: {step.batch})" if step.batch else ""
        why = step.name_output(plan.image, image.name).why
        lines.append(f"  step {at}      bash {step.script}: {why}{job}")
    lines.append("  packages")
    width = max((len(package.asked) for package in plan.packages), default=0)
    lines += [f"    {package.asked.ljust(width)}  ->  {package.became}  ({package.why})" for package in plan.packages]
    return "\n".join(map(escape_line, lines))


def summarize_build(report: Report) -> str:
    """Summarise a build in a few lines: measurements and failures; report.json has the rest."""
    from builder.execute.judgement import select_first_causes  # a dry run has no verdict

    lines = [
        f"ok    {name + ' ':8}{summarize_result(result)}"
        for name, result in report.smoke.items()
        if all(check.ok for check in report.checks if check.name.startswith(f"{name}: "))
    ]
    bad = select_first_causes(report.checks)
    lines += [f"FAIL  {check.name}: {check.measured} (expected {check.expected})" for check in bad]
    size = f", {report.image_bytes / 1e6:.0f} MB" if report.image_bytes else ""
    word: str = UNTESTED if report.verdict == "built" else report.status
    if report.status == "smoke-failed":
        disproved = any(finding.code in PROOF for finding in report.findings)
        word = "the image is not what was planned" if disproved else "the smoke test failed"
    if report.verified:
        lines.append(summarize_reproduction(report))
    what = f"{report.image}{size}" if report.image else "no image"
    lines.append(f"{word}: {what}, {report.seconds:.0f} s")
    return "\n".join(map(escape_line, lines))


def summarize_reproduction(report: Report) -> str:
    """Summarise a second build in a line."""
    found = report.verified
    if found.get("same"):
        return f"the same bytes: a second build gave the same image, sha256 {found.get('sha256')}"
    count = found.get("count")
    what = f"{count} difference{'' if count == 1 else 's'}" if count else found.get("error")
    return f"NOT the same bytes: {what}"


def summarize_result(result: Any) -> str:
    """Summarise one workload in a line; its result may be any JSON."""
    found = to_dict(result)
    parts: list[str] = []
    ranks = found.get("ranks")
    if isinstance(ranks, list):
        parts.append(f"{len(ranks)} ranks over {to_text(found.get('backend')) or '?'}, equal parameters")
    accuracy = to_number(found.get("accuracy"))
    if accuracy is not None:
        training = to_dict(found.get("training"))
        losses = [loss for name in ("first_loss", "last_loss") if (loss := to_number(training.get(name))) is not None]
        parts.append(f"accuracy {accuracy:.3f}")
        if len(losses) == 2:
            parts.append(f"loss {losses[0]:.2f} to {losses[1]:.2f}")
    for item in map(to_dict, to_list(found.get("imports"))):
        parts.append(f"{to_text(item.get('name'))} {to_text(item.get('version'))}".strip())
    device = to_dict(found.get("device"))
    if device:
        parts.append(f"on {to_text(device.get('name'))}")
    seconds = to_number(to_dict(found.get("seconds")).get("total"))
    return ", ".join([*parts, f"{seconds:.0f} s"] if seconds is not None else parts)
