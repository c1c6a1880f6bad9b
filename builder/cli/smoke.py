"""recipe smoke: run the smoke test in an existing image."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

import click

from builder.cli.help import GroupedCommand
from builder.cli.image_arguments import OfImage, read_image_words
from builder.cli.inputs import account_option, add_here_option, add_trust_option, add_verbosity, make_context
from builder.cli.options import (
    add_batch_options,
    add_launch_options,
    add_shape_options,
    add_wrong_values,
    make_launch_variables,
    make_printer,
    take_slurm_options,
)
from builder.cli.output import color_verdict, echo, show_findings
from builder.cli.paths import check_existing
from builder.cli.terminal import Terminal
from builder.cli.typed import quote, write_path
from builder.compile.image_plans import make_image_target, make_smoke_plan
from builder.compile.launch.choice import choose_launch
from builder.execute.build_options import ExecutionOptions
from builder.execute.image_smoke import test_image
from builder.execute.judgement import select_first_causes
from builder.execute.plan_executor import raise_on_failure
from builder.execute.plan_folder import ELSEWHERE, lock_plan_folder, write_plan
from builder.execute.preflight import check_bindable, find_programs
from builder.execute.progress import Progress, SingleProgress
from builder.inspect.image import has_torch
from builder.model.finding import Finding, SmokeError
from builder.model.plan import Plan
from builder.model.recipe import Workload
from builder.model.report import SmokeCheck
from builder.pipeline.batch import Submission, submit_and_follow
from builder.pipeline.own_inputs import check_not_inputs
from builder.pipeline.prepare import check_here, check_jobs_ended, check_jobs_possible
from builder.pipeline.request import SlurmOptions
from builder.system.scratch import make_work_folder

NO_TORCH = "the image has no torch, and only that can train"


@click.command("smoke", cls=GroupedCommand)
@click.argument("words", nargs=-1, metavar="[SITE] IMAGE")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Folder with MNIST's IDX files; default: synthetic digits."
)
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    type=click.Choice(get_args(Workload)),
    help="Only this one; may be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for scripts, logs and results; default: none is kept, of jobs NAME.smoke here.",
)
@add_trust_option
@add_here_option
@add_batch_options
@add_launch_options
@add_shape_options
@account_option
@add_verbosity
def run_command(
    words: tuple[str, ...], data: Path | None, workloads: tuple[Workload, ...], output: Path | None, here: bool,
    nodes: int | None, gpus: int | None, verbose: int, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Train in IMAGE as SITE would run it and check the numbers: on this machine, or with --submit as a job.

    Exits with 6 when the test fails. On a machine without the site's GPUs it trains on the CPU and reports that. An
    image without torch is not tested unless --workload names what to run.
    With --submit, --nodes and --gpus run the whole suite over so many.
    """
    with add_wrong_values(options):
        named = read_image_words(words, what="image", quiet=quiet)
    slurm = take_slurm_options(options, account=options["account"], sites=[named.site], shape=(nodes, gpus))
    image = named.path
    loaded = choose_launch(named.site, launcher=options["launcher"], gpu_visibility=options["gpu_visibility"])
    check_not_inputs([("the image", image), *([("the data", data)] if data else [])], image=None, folder=output)
    _check_paths(output=output, data=data)
    variables = {"RECIPE_IMAGE": str(image), **make_launch_variables(options)}
    if data is not None:
        variables["RECIPE_MNIST"] = str(check_existing(data, what="data folder"))
    target = make_image_target(
        loaded,
        image=variables["RECIPE_IMAGE"],
        context=make_context(account=options["account"]),
        folder=(image / "bin").is_dir(),
        workloads=workloads or None,
    )
    plan = make_smoke_plan(target, nodes=nodes, devices=gpus)
    if not slurm.submit:
        check_here(loaded, here=here, what="a smoke test")
    if not workloads and not has_torch(image):
        _report_no_torch(words[0] if len(words) > 1 else loaded.name, words[-1], slurm=slurm)
        return
    terminal = Terminal(verbose=bool(verbose), quiet=quiet)
    if slurm.submit:
        _submit(plan, named, slurm=slurm, folder=output, variables=variables, terminal=terminal)
    else:
        environment, progress = {**os.environ, **variables}, terminal.choose_progress()
        _run_locally(plan, image=image, folder=output, environment=environment, progress=progress)


def _submit(
    plan: Plan, named: OfImage, *, slurm: SlurmOptions, folder: Path | None, variables: dict[str, str],
    terminal: Terminal,
) -> None:  # fmt: skip
    """Test in a job; raises the fault of the report where it failed."""
    check_jobs_possible(named.site, slurm=slurm)
    folder = folder or Path(f"{named.path.name.removesuffix('.sif')}.smoke")
    click.get_current_context().with_resource(
        lock_plan_folder(plan, folder, recipe_folder=folder, fix=ELSEWHERE, check_jobs=check_jobs_ended)
    )
    what = Submission(
        plan=plan, site=named.site, kind="smoke", folder=folder, output=Path(plan.image),
        options=ExecutionOptions(environment=dict(os.environ)), variables=variables,
    )  # fmt: skip
    display = SingleProgress(terminal.choose_progress())
    report = submit_and_follow(what, jobs=slurm, display=display, tell=make_printer(quiet=terminal.quiet))
    if report is not None:
        terminal.report("", report)
        raise_on_failure(report)
        echo(color_verdict("verdict: pass"))


def _report_no_torch(site: str, image: str, *, slurm: SlurmOptions) -> None:
    """Print that an image was not tested, and the line that runs a command in it at the same place."""
    account = ["--account", slurm.account] if slurm.account else []
    where = ["--submit", *account] if slurm.submit else ["--here"]  # as the smoke test was to run, whatever the machine
    line = f"recipe run {quote(*where, site, write_path(image), '--', 'python3', '--version')}"
    echo(color_verdict(f"verdict: not tested: {NO_TORCH}; run a test of your own in it, as in `{line}`"))


def _check_paths(*, output: Path | None, data: Path | None) -> None:
    """Refuse folders that no container can be given; raises ConfigError."""
    for what, path in (("the output", output), ("the data folder", data)):
        if path is not None:
            check_bindable(path, what=what, fix="give a path without it")


def _run_locally(
    plan: Plan, *, image: Path, folder: Path | None, environment: dict[str, str], progress: Progress
) -> None:
    """Test on this machine; raises SmokeError, and ToolError without a container engine."""
    find_programs(plan.steps, environment=environment)
    with make_work_folder("recipe-smoke-") as scratch:
        place = folder or scratch / "plan"
        write_plan(plan, place, recipe_folder=place, fix=ELSEWHERE, check_jobs=check_jobs_ended)
        tested = test_image(plan, folder=place, environment=environment, progress=progress)
    for line in check_lines(tested.checks):
        echo(color_verdict(line))
    show_findings(tested.findings)
    bad = tested.causes
    echo(color_verdict("verdict: " + ("pass" if not bad else "FAIL")))
    if bad:
        message = f"the image '{image}' failed: {'; '.join(f'{check.name}: {check.measured}' for check in bad)}"
        fix = "read the lines above; keep the logs with -o"
        raise SmokeError(Finding(code="smoke-failed", message=message, fix=fix))


def check_lines(checks: tuple[SmokeCheck, ...]) -> list[str]:
    """Write a line for each check; for a workload that ended with an error, only the error."""
    causes = select_first_causes(checks)
    return [
        f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.measured} (expected {check.expected})"
        for check in checks
        if check.ok or check in causes
    ]
