"""How an image is run at a site: the folder `run/` of a plan, one script a shape of job, in the site's own launcher.

Three levels, because each value has its time: a job script (early: modules, master address), `rank.sh` (late: what only
a rank knows, such as its device) and `container.sh` (the runtime with its flags and binds), which the others source.
"""

from __future__ import annotations

from builder.compile.launch.jobs import here_script, shape_script, suite_of
from builder.compile.launch.launchers import refuse_command
from builder.compile.launch.scripts import container_script, job_script, rank_script
from builder.compile.launch.shape import Shape, ranks_per_node, shape, shape_of
from builder.compile.render import verbatim
from builder.model.plan import File
from builder.model.target import Target

__all__ = ["Shape", "ranks_per_node", "refuse_command", "run_files", "shape", "shape_of", "shape_script", "suite_of"]


def run_files(target: Target) -> tuple[File, ...]:
    """Every script of `run/`."""
    files = [
        File(path="run/container.sh", text=container_script(target)),
        File(path="run/suite.sh", text=verbatim("suite.sh")),
    ]
    if target.site.scheduler.kind == "none":
        return (
            *files,
            File(path="run/one.sh", text=here_script(target, ranks=False)),
            File(path="run/ranks.sh", text=here_script(target, ranks=True)),
        )
    files += [
        File(path="run/job.sh", text=job_script(target)),
        File(path="run/rank.sh", text=rank_script(target)),
        File(path="run/watch.sh", text=verbatim("watch.sh")),
    ]
    for purpose in ("gpu", "node", "nodes"):
        job = target.site.scheduler.jobs.get(purpose)
        if job is not None:
            files.append(shape_script(target, job, purpose=purpose).file)
    return tuple(files)
