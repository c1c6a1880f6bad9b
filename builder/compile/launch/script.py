"""The job script of a shape: header, the job's environment, the launcher's line, and the suite without a command."""

from __future__ import annotations

from builder.compile.content import slug
from builder.compile.launch.job import port_lines
from builder.compile.launch.launchers import LAUNCHERS
from builder.compile.launch.suite import suite_lines
from builder.compile.scripts import batch_script
from builder.model.site import Job, Purpose
from builder.model.target import Target

SHAPES = {"gpu": "one device", "node": "one node", "nodes": "several nodes (sbatch --nodes=N)"}


def shape_script(target: Target, job: Job, *, purpose: Purpose, name: str = "", script: str = "") -> str:
    """An sbatch script for one device, (a part of) one node or several nodes; "$@" is the command, none is the suite.

    `name` is the job's name, by default that of the recipe and the shape; `script` the path in the plan folder.
    """
    before, call = LAUNCHERS[target.site.launch.launcher](target, job, purpose)
    lines = [
        ". run/job.sh",
        *port_lines(target, job),
        ". run/container.sh",
        ". run/suite.sh",
        *before,
        "",
        "# launch COMMAND...: the command, once a rank",
        "launch() {",
        *[f"    {line}" for line in call],
        "}",
        "",
        'if [ "$#" -gt 0 ]; then',
        '    launch "$@"',
        "    exit",
        "fi",
        *suite_lines(target, job, purpose=purpose),
    ]
    title = f"{SHAPES[purpose]} of {target.site.title}: runs the command that is given, or the smoke suite."
    return batch_script(
        target,
        job,
        name=name or f"{slug(target.recipe.name)}-{purpose}",
        title=title,
        lines=lines,
        shape=purpose,
        script=script or f"run/{purpose}.sbatch",
        ranks=True,
    )
