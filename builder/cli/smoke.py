"""recipe smoke: run the smoke test in an existing image."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

from builder.cli.help import GroupedCommand
from builder.cli.image_arguments import OfImage, read_image_words
from builder.cli.inputs import make_context
from builder.cli.options import (
    add_run_options,
    add_wrong_values,
    make_launch_variables,
    make_printer,
    take_slurm_options,
)
from builder.cli.output import color_verdict, echo, show_findings
from builder.cli.paths import check_existing
from builder.cli.settings import choose_account
from builder.cli.terminal import Terminal
from builder.cli.typed import quote, remove_options, write_path
from builder.compile.image_plans import make_image_target, make_smoke_plan
from builder.compile.launch.shape import choose_launch
from builder.compile.smoke_step import MPI_LAUNCHERS, MPI_MODULE, MPI_WORKLOAD
from builder.execute.build_options import ExecutionOptions
from builder.execute.judgement import select_first_causes, test_image
from builder.execute.machine import check_run_machine
from builder.execute.plan_executor import raise_on_failure
from builder.execute.plan_folder import ELSEWHERE, lock_plan_folder, write_plan
from builder.execute.preflight import check_bindable, find_programs
from builder.execute.progress import Progress, SingleProgress
from builder.inspect.image import has_cpu_torch, has_mpi4py, has_torch, read_contents
from builder.model.contents import TorchBuild
from builder.model.finding import ConfigError, Finding, SmokeError
from builder.model.plan import Plan
from builder.model.recipe import Workload
from builder.model.report import SmokeCheck
from builder.model.site import Site
from builder.model.target import Context, Target
from builder.model.text import exists
from builder.pipeline.batch import Submission, submit_and_follow
from builder.pipeline.own_inputs import check_not_inputs
from builder.pipeline.prepare import check_here, check_jobs_ended, check_jobs_possible
from builder.pipeline.request import SlurmOptions
from builder.pipeline.resolution import add_gpu
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
@add_run_options
def run_command(
    words: tuple[str, ...], data: Path | None, workloads: tuple[Workload, ...], output: Path | None, here: bool,
    nodes: int | None, gpus: int | None, verbose: int, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Train in IMAGE as SITE would run it and check the numbers: on this machine, or with --submit as a job.

    Exits with 6 when the test fails. On a machine of the site without GPUs, or with --here on any other, it trains on
    the CPU and reports that. Of an image with mpi4py and no torch the MPI is
    loaded, as after a build; any other without torch is not tested unless --workload names what to run.
    With --submit, --nodes and --gpus run the whole suite over so many.
    """
    with add_wrong_values(options):
        named = read_image_words(words, what="image", quiet=quiet)
    options["account"] = choose_account(options["account"], site=named.site.name)
    slurm = take_slurm_options(options, account=options["account"], sites=[named.site], shape=(nodes, gpus))
    image = named.path
    loaded = choose_launch(named.site, launcher=options["launcher"], gpu_visibility=options["gpu_visibility"])
    if options["launcher"] and not slurm.submit:
        raise _refuse_launcher()
    check_not_inputs([("the image", image), *([("the data", data)] if data else [])], image=None, folder=output)
    _check_paths(output=output, data=data)
    variables = {"RECIPE_IMAGE": str(image), **make_launch_variables(options)}
    if data is not None:
        variables["RECIPE_MNIST"] = str(check_existing(data, what="data folder"))
    context = _make_context(image, site=loaded, account=options["account"])
    target = make_image_target(
        loaded, image=str(image), context=context, folder=(image / "bin").is_dir(), workloads=workloads or None
    )
    plan = make_smoke_plan(target, nodes=nodes, devices=gpus)
    if workloads and (nodes, gpus) == (None, None):
        _check_ranks(loaded, workloads=workloads)
    if not slurm.submit:
        check_here(loaded, here=here, what="a smoke test")
        doubt = check_run_machine(loaded, environment=os.environ, sure=here)
        show_findings([doubt] if doubt and not quiet else [])
    if not workloads and not has_torch(image):
        if loaded.brings_mpi or (nodes, gpus) != (None, None) or not has_mpi4py(image):
            _report_no_torch(words[0] if len(words) > 1 else loaded.name, words[-1], slurm=slurm)
            return
        plan = _plan_mpi_import(target, image=image)
    _check_torch(image, site=loaded)
    terminal = Terminal(verbose=bool(verbose), quiet=quiet)
    if slurm.submit:
        _submit(plan, named, slurm=slurm, folder=output, variables=variables, terminal=terminal)
    else:
        environment, progress = {**os.environ, **variables}, terminal.choose_progress()
        _run_locally(plan, image=image, folder=output, environment=environment, progress=progress)


def _plan_mpi_import(target: Target, *, image: Path) -> Plan:
    """Plan the only test of an image with mpi4py and without torch: as after a build, its MPI is loaded."""
    return make_smoke_plan(
        make_image_target(
            target.site, image=str(image), context=target.context, folder=target.traits.makes_folder,
            workloads=(), imports=(MPI_MODULE,),
        )
    )  # fmt: skip


def _make_context(image: Path, *, site: Site, account: str | None) -> Context:
    """The context with this machine's GPU, unless the image's torch is for CPUs."""
    context = add_gpu(make_context(account=account), site)
    return replace(context, gpu=None) if context.gpu is not None and has_cpu_torch(image) else context


def _refuse_launcher() -> ConfigError:
    fix = f"add --submit, or leave it out: `{remove_options(['--launcher'])}`"
    return ConfigError(Finding(code="usage", message="--launcher is for jobs", fix=fix))


def _check_torch(image: Path, *, site: Site) -> None:
    """Raise SmokeError where the image's torch is built for another vendor's GPUs, or for CPUs: no run is needed."""
    builds: tuple[TorchBuild, ...] = ()
    with suppress(ConfigError):  # the run says what is wrong with an image that cannot be read
        builds = read_contents(image).torch if site.gpu is not None else ()
    own = {"amd": "hip", "nvidia": "cuda", "intel": "xpu"}.get(site.vendor, "")
    # A build that says nothing may be one of the vendor's own.
    if not builds or not all(one.version.endswith("+cpu") or one.cuda or one.hip or one.xpu for one in builds):
        return
    if any(getattr(one, own) for one in builds):
        return
    check = SmokeCheck(
        name="image: torch", ok=False, measured=f"torch {builds[0].version} is not built for {site.vendor} GPUs",
        expected=f"a build for {site.vendor}",
    )  # fmt: skip
    for line in check_lines((check,)):
        echo(color_verdict(line))
    echo(color_verdict("verdict: FAIL"))
    message = f"the image '{image}' failed, before a run: {check.measured}"
    fix = f"build an image for '{site.name}', or name the site that this one was built for"
    raise SmokeError(Finding(code="smoke-failed", message=message, fix=fix))


def _submit(
    plan: Plan, named: OfImage, *, slurm: SlurmOptions, folder: Path | None, variables: dict[str, str],
    terminal: Terminal,
) -> None:  # fmt: skip
    """Test in a job; raises the fault of the report where it failed."""
    check_jobs_possible(named.site, slurm=slurm)
    folder = folder or Path(f"{named.path.name.removesuffix('.sif')}.smoke")
    new = not os.path.lexists(folder)
    click.get_current_context().with_resource(
        lock_plan_folder(plan, folder, recipe_folder=folder, fix=ELSEWHERE, check_jobs=check_jobs_ended)
    )
    what = Submission(
        plan=plan, site=named.site, kind="smoke", folder=folder, output=Path(plan.image),
        options=ExecutionOptions(environment=dict(os.environ)), variables=variables, new=new,
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


def _check_ranks(site: Site, *, workloads: tuple[Workload, ...]) -> None:
    """Refuse MPI on one device where a launcher of the site starts the ranks; raises ConfigError."""
    if MPI_WORKLOAD in workloads and site.launch.launcher in MPI_LAUNCHERS:
        message = f"the workload {MPI_WORKLOAD} runs over the ranks of {site.launch.launcher} on '{site.name}'"
        raise ConfigError(Finding(code="usage", message=message, fix="give --submit and --nodes 2"))


def _check_paths(*, output: Path | None, data: Path | None) -> None:
    """Refuse folders that no container can be given; raises ConfigError."""
    if output is not None and exists(output) and not output.is_dir():
        message = f"the output '{output}' is not a folder: the results are files in one"
        raise ConfigError(Finding(code="output-kind", message=message, fix="name a new folder with -o"))
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
    bad = [check.name.rpartition(": ") for check in checks if not check.ok]
    ended = {name for name, _, what in bad if what in ("error", "result")}
    return [
        f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.measured} (expected {check.expected})"
        for check in checks
        if (check.ok and check.name.rpartition(": ")[0] not in ended) or check in causes
    ]
