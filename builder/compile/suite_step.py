"""The suite on a job of some shape, as a step of a plan: a test at the scale at which the image will run."""

from __future__ import annotations

from builder.compile.image_files import slugify
from builder.compile.launch import choose_job, make_shape, make_shape_script
from builder.compile.step_scripts import attach_job
from builder.model.plan import PlanFile, Step
from builder.model.target import Target


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
