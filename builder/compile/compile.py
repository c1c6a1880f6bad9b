"""compile_plan: a target becomes a plan. Pure: the same target gives the same bytes."""

from __future__ import annotations

from dataclasses import replace

from builder.compile import shell
from builder.compile.backend_plan import Build
from builder.compile.backends import BACKENDS, all_findings
from builder.compile.image_files import expected
from builder.compile.launch import run_files
from builder.compile.render import render, verbatim
from builder.compile.scripts import account_hint
from builder.compile.smoke_step import smoke_copies, smoke_step, workloads
from builder.compile.suite_step import suite_job
from builder.model.plan import File, Plan, Step
from builder.model.target import Target


def compile_plan(target: Target, *, nodes: int | None = None, devices: int | None = None, page: bool = True) -> Plan:
    """Write every file and step of a target; raises UnsupportedError when its backend cannot serve it.

    With `nodes` or `devices` (of each node) the suite over that shape of job is one step more. Without `page` its
    README is empty: a plan that is only looked at needs no templates.
    """
    findings = all_findings(target)
    build = BACKENDS[target.backend].plan(target)
    script = f"{len(build.steps) + 1}-smoke.sh"
    smoke, smoke_files = smoke_step(target, script=script)
    steps: tuple[Step, ...] = (*build.steps, smoke)
    suite, steps = _with_suite(target, steps, nodes=nodes, devices=devices)
    plan = Plan(
        target=target.name,
        recipe=target.recipe.name,
        site=target.site.name,
        backend=target.backend,
        vendor=target.site.vendor,
        image=build.image,
        image_kind=build.image_kind,
        base=target.base.reference,
        steps=steps,
        files=(*build.files, *smoke_files, *suite, *run_files(target), *job_files(target)),
        copies=(*build.copies, *smoke_copies()),
        packages=target.packages,
        findings=findings,
        expect=expected(target),
        tool=target.context.tool,
        tmpdir=target.site.build.tmpdir,
    )
    text = readme(target, plan=plan, build=build) if page else ""
    return replace(plan, files=(File(path="README.md", text=text), *plan.files))


def _with_suite(
    target: Target, steps: tuple[Step, ...], *, nodes: int | None, devices: int | None
) -> tuple[tuple[File, ...], tuple[Step, ...]]:
    """The file and the step of the suite over a shape of job, where one was asked for."""
    if nodes is None and devices is None:
        return (), steps
    file, step = suite_job(target, number=len(steps) + 1, nodes=nodes, devices=devices)
    return (file,), (*steps, step)


def job_files(target: Target) -> tuple[File, ...]:
    """What every job script of a plan sources."""
    return (File(path="record.sh", text=verbatim("record.sh")),) if target.site.scheduler.kind == "slurm" else ()


def readme(target: Target, *, plan: Plan, build: Build) -> str:
    """A page for whoever finds the folder."""
    purposes = [name for name in ("gpu", "node", "nodes") if name in target.site.scheduler.jobs]
    submit = [*map(shell.word, target.site.scheduler.submit)]
    return render(
        "README.md.j2",
        plan=plan,
        build=build,
        target=target,
        purposes=purposes,
        workloads=workloads(target),
        sbatch=" ".join(["sbatch", *submit, *(account_hint(target) if target.site.scheduler.account_form else [])]),
        files=[file.path for file in plan.files],
    )
