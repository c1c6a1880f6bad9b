"""recipe build: check, resolve, compile, execute and smoke-test."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from builder.cli.batch import Asked, batch_options, shape_options, teller
from builder.cli.help import Grouped
from builder.cli.inputs import choices, context_of, load_inputs, locked_option, trust_option, verbosity
from builder.cli.login import here_option
from builder.cli.one_build import ImageBuild, Wanted, carry_out, planned, preflight
from builder.cli.show import echo, emit, judged, show_findings, use_color
from builder.cli.words import read_words, words_argument
from builder.execute.judgement import first_causes
from builder.execute.names import PROOF
from builder.execute.options import Options
from builder.execute.progress import choose_progress
from builder.model.finding import Finding
from builder.model.plain import listing, number, table, text
from builder.model.plan import Plan
from builder.model.report import Report
from builder.model.safe import one_line


@click.command("build", cls=Grouped)
@words_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The image, default: NAME-SITE.sif here; of several builds their folder.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Look for what it needs, print what it would do, and do nothing.")
@click.option("-f", "--force", is_flag=True, help="Replace an output that exists.")
@click.option("--from", "start", metavar="STEP", default="", help="Start from a step; the earlier ones are done.")
@click.option("--no-smoke", is_flag=True, help="Build without the smoke test.")
@click.option(
    "--tmpdir",
    type=click.Path(path_type=Path),
    help="Temporary folder of the build; needs the unpacked image's size.",
    envvar="RECIPE_TMPDIR",
    show_envvar=True,
)
@click.option(
    "--accept-licenses", is_flag=True, help="Accept the licences that an engine asks about (cotainr: Miniforge)."
)
@click.option("--sign", is_flag=True, help="Sign the image with the key of your keyring (`apptainer key newpair`).")
@click.option("--offline", is_flag=True, help="Use what `recipe fetch` or an earlier build got, and ask no server.")
@click.option("--verify", is_flag=True, help="Build a second time and compare: exit code 8 where a byte differs.")
@click.option(
    "-j", "--jobs", metavar="N", type=click.IntRange(1), help="Of several builds so many at once; default: what fits."
)
@trust_option
@locked_option
@here_option
@batch_options
@shape_options
@choices
@verbosity
def command(
    words: tuple[str, ...],
    output: Path | None,
    dry_run: bool,
    force: bool,
    start: str,
    no_smoke: bool,
    tmpdir: Path | None,
    accept_licenses: bool,
    sign: bool,
    offline: bool,
    verify: bool,
    jobs: int | None,
    here: bool,
    nodes: int | None,
    gpus: int | None,
    verbose: int,
    quiet: bool,
    **options: Any,
) -> None:
    """Build the image of the environment file ENV for SITE, and train in it.

    The plan folder (scripts, logs, report.json) lies beside the image and is named after it. With --submit every step
    is a Slurm job, each after the one before it; those that a site has no job for run here first. With --nodes or
    --gpus the suite over so many is one job more. Several sites or files are built side by side.
    """
    named, environment = read_words(words), _environment(accept_licenses=accept_licenses, offline=offline)
    if named.note and not quiet:
        echo(named.note, err=True)
    how = Options(
        environment=environment, force=force, tmpdir=tmpdir, start=start, no_smoke=no_smoke, sign=sign, verify=verify
    )
    asked = Asked.take(options, account=options["account"], shape=(nodes, gpus))
    wanted = Wanted(asked=asked, options=how, here=here)
    context, shape = context_of(**options), (nodes, gpus)
    if not named.single:
        from builder.cli.several import Shown, build_several, plan_several

        shown = Shown(verbose=bool(verbose), quiet=quiet)
        plans = plan_several(named, context=context, shape=shape, folder=output)
        build_several(plans, folder=output, wanted=wanted, jobs=jobs, dry_run=dry_run, shown=shown)
        return
    site, recipe = load_inputs(named.sites[0], named.files[0])
    build = planned(site, recipe, context=context, shape=shape, output=output)
    if not quiet:
        show_findings(visible(build.plan, verbose=bool(verbose) or dry_run))
    if dry_run:
        done = preflight(build, wanted=wanted)
        if done:
            teller(quiet=quiet)(f"nothing to do: {build.image} was built from this and {done}")
        echo(describe(build.plan, image=build.image, folder=build.folder))
        return
    progress = choose_progress(
        sys.stderr, verbose=bool(verbose), quiet=quiet, color=use_color(), environment=environment
    )
    if carry_out(build, wanted=wanted, progress=progress, show=show_verdict(quiet=quiet), tell=teller(quiet=quiet)):
        emit(str(build.image))
        if not quiet:
            echo("\n".join(next_lines(build)), err=True)


def _environment(*, accept_licenses: bool, offline: bool) -> dict[str, str]:
    """The variables that steps run with."""
    environment = {name: value for name, value in os.environ.items() if name != "RECIPE_FETCH"}
    if accept_licenses:
        environment["RECIPE_ACCEPT_LICENSES"] = "yes"
    if offline:
        environment["RECIPE_OFFLINE"] = "yes"
    return environment


def next_lines(build: ImageBuild) -> list[str]:
    """What a user does with a new image: a command for each."""
    site, image = build.site.name, shlex.quote(str(build.image))
    lines = [f"recipe run {site} {image} -- python3 train.py", f"recipe report {image}"]
    if build.site.scheduler.kind == "slurm":
        account = " --account=NAME" if build.site.scheduler.account == "required" else ""
        lines.append(f"recipe run {site} {image} --submit --nodes 2{account} -- python3 train.py")
    else:
        lines.append(f"recipe inspect {image}")
    return [f"next: {line}" for line in lines]


def visible(plan: Plan, *, verbose: bool) -> list[Finding]:
    """Notes are in the plan's README and in `recipe check`; a build shows what wants attention."""
    return [finding for finding in plan.findings if finding.level != "note" or verbose]


def show_verdict(*, quiet: bool) -> Callable[[Report], None]:
    """What says the end of a build, or nothing."""
    return lambda report: None if quiet else echo(judged(verdict(report), err=True), err=True)


def describe(plan: Plan, *, image: Path, folder: Path) -> str:
    """What a build would do."""
    lines = [f"{plan.target}: {image}", f"  base image  {plan.base}"]
    if plan.expect.get("torch"):
        lines.append(f"  torch       {plan.expect['torch']}")
    lines += [f"  plan        {folder}/ ({len(plan.files)} files, written by a build or by `recipe plan`)"]
    for at, step in enumerate(plan.steps, start=1):
        job = f" (as a job: {step.batch})" if step.batch else ""
        lines.append(f"  step {at}      bash {step.script}: {step.why}{job}")
    lines.append("  packages")
    width = max((len(package.asked) for package in plan.packages), default=0)
    lines += [f"    {package.asked.ljust(width)}  ->  {package.became}  ({package.why})" for package in plan.packages]
    return "\n".join(lines)


def verdict(report: Report) -> str:
    """The end of a build in a few lines: what was measured, what failed; the rest is in report.json."""
    lines = [f"ok    {name + ' ':8}{summary(result)}" for name, result in report.smoke.items() if _passed(report, name)]
    bad = first_causes(report.checks)
    lines += [f"FAIL  {check.name}: {check.measured} (expected {check.expected})" for check in bad]
    size = f", {report.image_bytes / 1e6:.0f} MB" if report.image_bytes else ""
    word: str = report.status
    if report.status == "smoke-failed":
        disproved = any(finding.code in PROOF for finding in report.findings)
        word = "the image is not what was planned" if disproved else "the smoke test failed"
    if report.verified:
        lines.append(again(report))
    what = f"{report.image}{size}" if report.image else "no image"
    lines.append(f"{word}: {what}, {report.seconds:.0f} s")
    return "\n".join(map(one_line, lines))


def again(report: Report) -> str:
    """What a second build gave, in a line."""
    found = report.verified
    if found.get("same"):
        return f"the same bytes: a second build gave the same image, sha256 {found.get('sha256')}"
    count = found.get("count")
    what = f"{count} difference{'' if count == 1 else 's'}" if count else found.get("error")
    return f"NOT the same bytes: {what}"


def _passed(report: Report, name: str) -> bool:
    return all(check.ok for check in report.checks if check.name.startswith(f"{name}: "))


def summary(result: Any) -> str:
    """One workload's numbers in a line; a result may be anything that a file can hold."""
    found = table(result)
    parts: list[str] = []
    ranks = found.get("ranks")
    if isinstance(ranks, list):
        parts.append(f"{len(ranks)} ranks over {text(found.get('backend')) or '?'}, equal parameters")
    accuracy = number(found.get("accuracy"))
    if accuracy is not None:
        training = table(found.get("training"))
        losses = [loss for name in ("first_loss", "last_loss") if (loss := number(training.get(name))) is not None]
        parts.append(f"accuracy {accuracy:.3f}")
        if len(losses) == 2:
            parts.append(f"loss {losses[0]:.2f} to {losses[1]:.2f}")
    for item in map(table, listing(found.get("imports"))):
        parts.append(f"{text(item.get('name'))} {text(item.get('version'))}".strip())
    device = table(found.get("device"))
    if device:
        parts.append(f"on {text(device.get('name'))}")
    seconds = number(table(found.get("seconds")).get("total"))
    return ", ".join([*parts, f"{seconds:.0f} s"] if seconds is not None else parts)
