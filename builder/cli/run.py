"""recipe run: run a command in an image with the site's settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from builder.cli.help import GroupedCommand
from builder.cli.image_arguments import read_image_words
from builder.cli.inputs import make_context
from builder.cli.missing_program import NOT_FOUND, find_missing_program
from builder.cli.options import (
    add_run_options,
    add_wrong_values,
    make_launch_variables,
    make_printer,
    take_slurm_options,
)
from builder.cli.output import echo, emit, show_findings
from builder.cli.scratch_plan import write_scratch_plan
from builder.cli.settings import choose_account
from builder.compile.image_plans import make_image_target, make_run_plan
from builder.compile.launch import check_command
from builder.compile.launch.shape import choose_launch
from builder.execute.build_options import ExecutionOptions
from builder.execute.machine import check_run_machine
from builder.execute.plan_folder import ELSEWHERE, lock_plan_folder
from builder.execute.preflight import check_bindable, find_programs
from builder.execute.progress import QuietProgress, SingleProgress
from builder.inspect.image import has_torch
from builder.model.finding import ConfigError, Finding, UnsupportedError, select_errors
from builder.model.plan import Plan
from builder.model.site import Site
from builder.model.target import Target
from builder.pipeline.batch import Submission, submit_plan
from builder.pipeline.own_inputs import check_not_inputs
from builder.pipeline.prepare import check_here, check_jobs_ended, check_jobs_possible
from builder.pipeline.request import SlurmOptions
from builder.pipeline.resolution import add_gpu
from builder.slurm.status import follow_command
from builder.system.process import attach


@click.command("run", cls=GroupedCommand, context_settings={"ignore_unknown_options": True})
@click.argument("given", metavar="[SITE] IMAGE -- CMD", nargs=-1, type=click.UNPROCESSED)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder of a job's scripts, log and record.")
@add_run_options
def run_command(
    given: tuple[str, ...], output: Path | None, here: bool, nodes: int | None, gpus: int | None, quiet: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Run CMD in IMAGE with SITE's binds, environment, launcher and CPU-GPU binding.

    It runs here, or in the allocation of this shell, or with --submit as a job on --nodes N with --gpus G each. Its
    working folder is the current one, and its exit code is that of CMD. On a machine without a batch system --gpus G
    starts G ranks.
    """
    with add_wrong_values(options):
        named = read_image_words(given, what="image", more="-- python3 --version", quiet=quiet)
    options["account"] = choose_account(options["account"], site=named.site.name)
    slurm = take_slurm_options(options, account=options["account"], sites=[named.site])
    path, words = named.path, named.rest
    loaded = choose_launch(named.site, launcher=options["launcher"], gpu_visibility=options["gpu_visibility"])
    check_not_inputs([("the image", path)], image=None, folder=output)
    context = add_gpu(make_context(account=options["account"]), loaded)
    target = make_image_target(loaded, image=str(path), context=context, folder=(path / "bin").is_dir())
    findings = check_command(target, words)
    if select_errors(findings):
        raise UnsupportedError(*findings)
    if not quiet:
        show_findings(findings)
    check_bindable(Path.cwd(), what="the current folder", fix="run it in a folder without it")
    if os.environ.get("PYTHONPATH") and not quiet:
        echo(
            "note: PYTHONPATH of this shell is seen in the image, too: unset it for the image's packages alone",
            err=True,
        )
    variables = {"RECIPE_IMAGE": str(path), "RECIPE_WORKDIR": str(Path.cwd())}
    variables |= make_launch_variables(options)
    if slurm.submit:
        check_jobs_possible(loaded, slurm=slurm)
        plan = make_run_plan(target, nodes=nodes, devices=gpus, here=False)
        code = _submit_command(plan, loaded, words, slurm=slurm, folder=output, variables=variables, quiet=quiet)
    else:
        check_here(loaded, here=here, what="a run")
        doubt = check_run_machine(loaded, environment=os.environ, sure=here)
        show_findings([doubt] if doubt and not quiet else [])
        launcher = options["launcher"] or ""
        code = _run_locally(target, path, words, nodes=nodes, gpus=gpus, launcher=launcher, variables=variables)
    if code:
        raise click.exceptions.Exit(code)


def _check_shape(
    site: Site, image: Path, *, nodes: int | None, gpus: int | None, launcher: str, inside: bool
) -> None:  # fmt: skip
    """Refuse nodes and launchers that only a job has, and ranks that only torch can start; raises ConfigError."""
    if inside:
        return
    for option in [name for name, given in (("--nodes", nodes), ("--launcher", launcher)) if given]:
        message = f"{option} is for jobs, and this shell is not in one"
        fix = "leave it out" if site.scheduler.kind == "none" else "add --submit, or leave it out"
        raise ConfigError(Finding(code="usage", message=message, fix=fix))
    if gpus is not None and os.environ.get("RECIPE_PROCESSES", "torchrun") == "torchrun" and not has_torch(image):
        message = f"--gpus starts the ranks with torchrun, and the image '{image.name}' has no torch"
        fix = "leave --gpus out, or set RECIPE_PROCESSES=plain for a program without torch"
        raise ConfigError(Finding(code="usage", message=message, fix=fix))


def _submit_command(
    plan: Plan,
    site: Site,
    words: tuple[str, ...],
    *,
    slurm: SlurmOptions,
    folder: Path | None,
    variables: dict[str, str],
    quiet: bool,
) -> int:
    """Submit the command and follow it to its exit code, unless --no-wait was given."""
    folder = folder or _free(Path(f"{plan.recipe}.run"))
    new = not os.path.lexists(folder)
    click.get_current_context().with_resource(
        lock_plan_folder(plan, folder, recipe_folder=folder, fix=ELSEWHERE, check_jobs=check_jobs_ended)
    )
    options = ExecutionOptions(environment=dict(os.environ))
    what = Submission(
        plan=plan, site=site, kind="run", folder=folder, output=Path(plan.image), options=options,
        variables=variables, command=words, new=new,
    )  # fmt: skip
    note = make_printer(quiet=quiet)
    submit_plan(what, jobs=slurm, display=SingleProgress(QuietProgress()), tell=note)
    if slurm.no_wait:
        note(f"submitted; run `recipe status {folder}` for progress and the result")
        return 0
    code, fault = follow_command(
        folder,
        environment=options.environment,
        on_line=emit,
        note=note,
        cancel_on_interrupt=slurm.cancel_on_interrupt,
    )
    show_findings([fault] if fault else [])
    return code


def _run_locally(
    target: Target, image: Path, words: tuple[str, ...], *, nodes: int | None, gpus: int | None, launcher: str,
    variables: dict[str, str],
) -> int:  # fmt: skip
    """Run the command's script on this terminal: here, or in the allocation of this shell."""
    inside = target.site.scheduler.kind == "slurm" and bool(os.environ.get("SLURM_JOB_ID"))
    number = os.environ.get("SLURM_JOB_NUM_NODES", "")  # of Slurm's own; by hand it may be anything
    allocated = int(number) if inside and number.isascii() and number.isdecimal() else 1
    _check_shape(target.site, image, nodes=nodes, gpus=gpus, launcher=launcher, inside=inside)
    nodes = nodes or (allocated if allocated > 1 else None)
    plan = make_run_plan(target, nodes=nodes, devices=gpus, here=not inside)
    (step,) = plan.steps
    find_programs(plan.steps, environment=os.environ)
    sys.stdout.flush()
    with write_scratch_plan(plan, shared=bool(step.batch)) as folder:
        environment = {**_make_shape_variables(plan), **os.environ, **variables, "RECIPE_FOLDER": str(folder)}
        count = [] if inside or gpus is None else [str(gpus)]
        missing = find_missing_program(image, words[0])
        line = ["bash", str(folder / step.script), *count, *words]
        code = attach(line, cwd=folder, env=environment, errors=missing.remove_error if missing else None)
    if missing is None or not missing.reported:
        return code
    show_findings([missing.explain()])
    return NOT_FOUND


def _make_shape_variables(plan: Plan) -> dict[str, str]:
    """The variables that sbatch sets and an allocation without these options does not have."""
    (step,) = plan.steps
    if step.job is None:
        return {}
    found = {
        "SLURM_CPUS_PER_TASK": step.job.cpus_per_task,
        "SLURM_NTASKS_PER_NODE": step.job.tasks_per_node,
        "SLURM_NTASKS": step.job.nodes * step.job.tasks_per_node,
    }
    return {name: str(value) for name, value in found.items() if value}


def _free(folder: Path) -> Path:
    """A new folder for this run: NAME.run, NAME.run-2 ..."""
    number, found = 1, folder
    while found.exists():
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found
