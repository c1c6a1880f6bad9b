"""compile_plan: a target becomes a plan. Pure: the same target gives the same bytes."""

from __future__ import annotations

from dataclasses import replace

from builder.compile import shell
from builder.compile.backend_plan import BackendPlan, make_audit_files
from builder.compile.backends import check_backend, load_backend
from builder.compile.image_files import make_expectations, slugify
from builder.compile.launch import choose_job, make_run_files, make_shape, make_shape_script
from builder.compile.render import read_template, render
from builder.compile.smoke_step import choose_step_workloads, list_smoke_copies, make_smoke_step
from builder.compile.step_scripts import attach_job, make_account_hint
from builder.model.plan import Plan, PlanFile, Step
from builder.model.target import Target


def compile_plan(target: Target, *, nodes: int | None = None, devices: int | None = None, page: bool = True) -> Plan:
    """Make every file and step of a target; raises UnsupportedError if its backend cannot build it.

    With `nodes` or `devices` (of each node) the plan has one more step: the suite on a job of that shape. Without
    `page` its README is empty: a dry run needs no templates.
    """
    findings = check_backend(target)
    build = load_backend(target.backend).plan(target)
    script = f"{len(build.steps) + 1}-smoke.sh"
    smoke, smoke_files = make_smoke_step(target, script=script)
    steps: tuple[Step, ...] = (*build.steps, smoke)
    suite, steps = _make_suite(target, steps, nodes=nodes, devices=devices)
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
        files=(
            *build.files,
            *smoke_files,
            *suite,
            *make_run_files(target),
            *make_job_files(target),
            *make_audit_files(target),
        ),
        copies=(*build.copies, *list_smoke_copies()),
        packages=target.packages,
        findings=findings,
        expect=make_expectations(target),
        tool=target.context.tool,
        tmpdir=target.site.build.tmpdir,
    )
    text = make_readme(target, plan=plan, build=build) if page else ""
    return replace(plan, files=(PlanFile(path="README.md", text=text), *plan.files))


def _make_suite(
    target: Target, steps: tuple[Step, ...], *, nodes: int | None, devices: int | None
) -> tuple[tuple[PlanFile, ...], tuple[Step, ...]]:
    """Make the file and the step of the suite on a job of the requested shape, if any."""
    if nodes is None and devices is None:
        return (), steps
    file, step = make_suite_step(target, number=len(steps) + 1, nodes=nodes, devices=devices)
    return (file,), (*steps, step)


def make_job_files(target: Target) -> tuple[PlanFile, ...]:
    """Make the file that every job script of a plan sources."""
    return (
        (PlanFile(path="record.sh", text=read_template("record.sh")),) if target.site.scheduler.kind == "slurm" else ()
    )


def make_readme(target: Target, *, plan: Plan, build: BackendPlan) -> str:
    """Make the page that explains the plan folder."""
    purposes = [name for name in ("gpu", "node", "nodes") if name in target.site.scheduler.jobs]
    submit = [*map(shell.quote_word, target.site.scheduler.submit)]
    return render(
        "README.md.j2",
        plan=plan,
        build=build,
        target=target,
        purposes=purposes,
        workloads=choose_step_workloads(target),
        sbatch=" ".join(
            ["sbatch", *submit, *(make_account_hint(target) if target.site.scheduler.account_form else [])]
        ),
        files=[file.path for file in plan.files],
    )


def make_suite_step(target: Target, *, number: int, nodes: int | None, devices: int | None) -> tuple[PlanFile, Step]:
    """Make the job script and the plan's `number`-th step; raises ConfigError if the site has no such shape."""
    purpose, job = choose_job(target, nodes=nodes, devices=devices)
    path = f"{number}-smoke-{purpose}.sbatch"
    name = f"{slugify(target.recipe.name)}-smoke-{purpose}"
    found = make_shape(target, job)
    ranks = f"{found.nodes} node{'s' if found.nodes > 1 else ''} x {found.ranks_per_node} ranks"
    step = Step(
        name=f"smoke-{purpose}",
        kind="smoke",
        why=f"run the suite on {ranks} and judge the numbers",
        script=path,
        produces=(f"results/{purpose}/verdict.json",),
    )
    script = make_shape_script(target, job, purpose=purpose, name=name, script=path)
    return script.file, attach_job(step, script)
