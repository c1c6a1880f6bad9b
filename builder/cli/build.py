"""recipe build: check, resolve, compile, execute and smoke-test."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from builder.cli.batch import Asked, Submission, batch_options, check_site, shape_options, to_verdict
from builder.cli.inputs import (
    choices,
    context_of,
    env_argument,
    load_inputs,
    locked_option,
    make_plan,
    site_argument,
    verbosity,
)
from builder.cli.login import check_here, here_option
from builder.cli.show import show_findings, use_color
from builder.execute.current import current_report
from builder.execute.executor import choose_steps, execute, raise_for
from builder.execute.folder import write_plan
from builder.execute.jobs.slurm import Slurm
from builder.execute.jobs.submit import check_free
from builder.execute.names import PROOF, plan_folder
from builder.execute.options import Options
from builder.execute.preflight import check_output
from builder.execute.progress import choose_progress
from builder.execute.sign import find_signer, is_signed
from builder.model.finding import ConfigError, Finding
from builder.model.plan import Plan
from builder.model.report import Report
from builder.model.site import Site


@click.command("build")
@site_argument
@env_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The image; default: NAME-SITE.sif here.")
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
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
@locked_option
@here_option
@batch_options
@shape_options
@choices
@verbosity
def command(
    site: str,
    env: Path,
    output: Path | None,
    dry_run: bool,
    force: bool,
    start: str,
    no_smoke: bool,
    tmpdir: Path | None,
    accept_licenses: bool,
    sign: bool,
    here: bool,
    nodes: int | None,
    gpus: int | None,
    verbose: int,
    quiet: bool,
    no_color: bool,
    **options: Any,
) -> None:
    """Build the image of the environment file ENV for SITE, and train in it.

    The plan folder (scripts, logs, report.json) lies beside the image and is named after it. With --submit every step
    is a Slurm job, each after the one before it; those that a site has no job for run here first. With --nodes or
    --gpus the suite over so many is one job more.
    """
    asked = Asked.take(options, account=options["account"], shape=(nodes, gpus))
    context = context_of(**options)
    loaded, recipe = load_inputs(site, env)
    plan = make_plan(loaded, recipe, context=context, nodes=nodes, devices=gpus)
    image = output or Path(plan.image)
    folder = plan_folder(image)
    if not quiet:
        # Notes are in the plan's README and in `recipe check`; a build shows what wants attention.
        shown = [finding for finding in plan.findings if finding.level != "note" or verbose or dry_run]
        show_findings(shown, color=not no_color)
    if dry_run:
        click.echo(describe(plan, image=image, folder=folder))
        return
    environment = dict(os.environ)
    if accept_licenses:
        environment["RECIPE_ACCEPT_LICENSES"] = "yes"
    wanted = Options(environment=environment, force=force, tmpdir=tmpdir, start=start, no_smoke=no_smoke, sign=sign)
    progress = choose_progress(
        sys.stderr, verbose=bool(verbose), quiet=quiet, color=use_color(wanted=not no_color), environment=environment
    )
    _check_place(loaded, plan, asked=asked, here=here, options=wanted)
    if not _prepare(plan, folder=folder, image=image, home=Path(recipe.folder), options=wanted, quiet=quiet):
        click.echo(str(image))
        return
    if asked.submit:
        what = Submission(plan=plan, site=loaded, kind="build", folder=folder, output=image, options=wanted)
        if not to_verdict(what, asked=asked, progress=progress, show=show_verdict(quiet=quiet), quiet=quiet):
            return
    else:
        report = execute(plan, folder=folder, output=image, options=wanted, progress=progress)
        show_verdict(quiet=quiet)(report)
        raise_for(report)
    click.echo(str(image))


def show_verdict(*, quiet: bool) -> Callable[[Report], None]:
    """What says the end of a build, or nothing."""
    return lambda report: None if quiet else click.echo(verdict(report), err=True)


def _check_place(site: Site, plan: Plan, *, asked: Asked, here: bool, options: Options) -> None:
    """Refuse to submit where there is nothing to submit to, and to work where one should not."""
    if not asked.submit:
        check_here(site, here=here, what="a build")
        return
    if options.sign:
        message = "--sign with --submit: a job has no terminal to ask for a passphrase at"
        fix = "leave out --sign, and sign the image with `apptainer sign` afterwards"
        raise ConfigError(Finding(code="sign-job", message=message, fix=fix))
    check_site(site, asked=asked)
    lead = [step.name for step in choose_steps(plan, options)[1][:1] if not step.batch]
    if lead:
        check_here(site, here=here, what=f"step '{lead[0]}', which has no job there,", jobs=False)


def _prepare(plan: Plan, *, folder: Path, image: Path, home: Path, options: Options, quiet: bool) -> bool:
    """Write the plan folder; False when there is nothing to do."""
    if not (options.force or options.start):
        done = current_report(plan, folder=folder, output=image, recipe_folder=home, no_smoke=options.no_smoke)
        if done is not None and (not options.sign or is_signed(image)):
            if not quiet:
                click.echo(f"nothing to do: {image} was built from this and {done}; --force builds it again", err=True)
            return False
    if options.sign:
        find_signer(plan, environment=options.environment)
    check_free(folder, slurm=Slurm(options.environment))
    if not options.start:
        # Before the plan folder changes: it belongs to the image that is there.
        check_output(plan, image.resolve(), force=options.force, kept=None)
    write_plan(plan, folder, recipe_folder=home)
    return True


def describe(plan: Plan, *, image: Path, folder: Path) -> str:
    """What a build would do."""
    lines = [f"{plan.target}: {image}", f"  base image  {plan.base}"]
    if plan.expect.get("torch"):
        lines.append(f"  torch       {plan.expect['torch']}")
    lines += [f"  plan        {folder}/ ({len(plan.files)} files, written by a build or by `recipe plan`)"]
    for number, step in enumerate(plan.steps, start=1):
        job = f" (as a job: {step.batch})" if step.batch else ""
        lines.append(f"  step {number}      bash {step.script}: {step.why}{job}")
    lines.append("  packages")
    width = max((len(package.asked) for package in plan.packages), default=0)
    lines += [f"    {package.asked.ljust(width)}  ->  {package.became}  ({package.why})" for package in plan.packages]
    return "\n".join(lines)


def verdict(report: Report) -> str:
    """The end of a build in a few lines: what was measured, what failed; the rest is in report.json."""
    lines = [f"ok    {name + ' ':8}{summary(result)}" for name, result in report.smoke.items() if _passed(report, name)]
    bad = [check for check in report.checks if not check.ok]
    lines += [f"FAIL  {check.name}: {check.measured} (expected {check.expected})" for check in bad]
    size = f", {report.image_bytes / 1e6:.0f} MB" if report.image_bytes else ""
    word: str = report.status
    if report.status == "smoke-failed":
        disproved = any(finding.code in PROOF for finding in report.findings)
        word = "the image is not what was planned" if disproved else "the smoke test failed"
    what = f"{report.image}{size}" if report.image else "no image"
    lines.append(f"{word}: {what}, {report.seconds:.0f} s")
    return "\n".join(lines)


def _passed(report: Report, name: str) -> bool:
    return all(check.ok for check in report.checks if check.name.startswith(f"{name}: "))


def summary(result: Any) -> str:
    """One workload's numbers in a line; a result may be anything that a file can hold."""
    found = result if isinstance(result, dict) else {}
    parts: list[str] = []
    ranks = found.get("ranks")
    if isinstance(ranks, list):
        parts.append(f"{len(ranks)} ranks over {found.get('backend', '?')}, equal parameters")
    if "accuracy" in found:
        training = found.get("training") or {}
        losses = (training.get("first_loss"), training.get("last_loss"))
        parts.append(f"accuracy {found['accuracy']:.3f}")
        if all(isinstance(loss, float) for loss in losses):
            parts.append(f"loss {losses[0]:.2f} to {losses[1]:.2f}")
    for item in found.get("imports") or ():
        parts.append(f"{item.get('name')} {item.get('version') or ''}".strip())
    device = found.get("device") or {}
    if device:
        parts.append(f"on {device.get('name')}")
    seconds = (found.get("seconds") or {}).get("total")
    return ", ".join([*parts, f"{seconds:.0f} s"] if isinstance(seconds, float) else parts)
