"""Scripts that run an image at a site: the folder `run/` of a plan, one script per shape of job.

There are three levels because values are expanded at different times: a job script (early: modules, master address),
`rank.sh` (late: what only a rank knows, such as its device) and `container.sh` (the runtime with its flags and binds),
which both source.
"""

from __future__ import annotations

from builder.compile.launch.container_scripts import make_container_script, make_job_environment, make_rank_script
from builder.compile.launch.launchers import check_command
from builder.compile.launch.settings import SETTINGS_FILE, make_folders_script, make_settings_script
from builder.compile.launch.shape import Shape, choose_job, count_ranks_per_node, make_shape
from builder.compile.launch.suite_scripts import choose_suite, make_local_script, make_shape_script
from builder.compile.render import read_template
from builder.model.plan import PlanFile
from builder.model.target import Target

__all__ = [
    "Shape",
    "check_command",
    "choose_job",
    "choose_suite",
    "count_ranks_per_node",
    "make_run_files",
    "make_shape",
    "make_shape_script",
]


def make_run_files(target: Target) -> tuple[PlanFile, ...]:
    """Make the files of `run/`: on a site with Slurm the jobs and what they source, else two scripts."""
    files = [
        PlanFile(path="run/container.sh", text=make_container_script(target)),
        PlanFile(path="run/suite.sh", text=read_template("suite.sh")),
    ]
    if target.site.scheduler.kind == "none":
        return (
            *files,
            PlanFile(path="run/one.sh", text=make_local_script(target, ranks=False)),
            PlanFile(path="run/ranks.sh", text=make_local_script(target, ranks=True)),
        )
    files += [
        PlanFile(path="run/job.sh", text=make_job_environment(target)),
        PlanFile(path="run/rank.sh", text=make_rank_script(target)),
        PlanFile(path="run/watch.sh", text=read_template("watch.sh")),
        PlanFile(path=SETTINGS_FILE, text=make_settings_script()),
        PlanFile(path="run/local.sh", text=make_folders_script(target)),
    ]
    if target.site.gpu is not None:
        files.append(PlanFile(path="run/device.sh", text=read_template("device.sh")))
    for purpose in ("gpu", "node", "nodes"):
        job = target.site.scheduler.jobs.get(purpose)
        if job is not None:
            files.append(make_shape_script(target, job, purpose=purpose).file)
    return tuple(files)
