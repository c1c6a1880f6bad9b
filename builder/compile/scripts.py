"""What a build job needs, from the site and the size of its image: memory, where that is its disk too, and time.

Step scripts and batch scripts: bash made of quoted words, read and run by people as well as by us.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from builder.compile import shell
from builder.compile.backend_plan import estimate_size_gib
from builder.compile.image_files import find_base_registry
from builder.model.plan import File, Step, Word
from builder.model.secrets import INDEXES
from builder.model.site import Job
from builder.model.step_job import StepJob
from builder.model.target import Target

TOOL_GIB = 8.0  # of the solver, of pip and of mksquashfs
MEMORY_STEP_GIB = 8  # memory is asked for in steps of so much
IMAGE_COPIES = 2.0  # of the unpacked image: itself, and what is being packed (LUMI: "at least twice", CSC's user guide)
FIXED_MINUTES, MINUTES_GIB = 15, 2.0  # to resolve and download; to install, compile and pack a GiB on a shared disk
USABLE_FRACTION = 0.93  # of a node's memory, where a job may have (LUMI: 480 of 512 GiB, 224 of 256)

_GIB = re.compile(r"(\d+)G")


def estimate_memory_gib(target: Target) -> int:
    """Memory that a build of this target needs, in GiB; twice the unpacked image where its disk is memory."""
    disk = IMAGE_COPIES * estimate_size_gib(target) if target.site.build.tmpdir_is == "memory" else 0.0
    return MEMORY_STEP_GIB * math.ceil((TOOL_GIB + disk) / MEMORY_STEP_GIB)


def estimate_minutes(target: Target) -> int:
    """Time that a build of this target takes, in minutes, generously."""
    return 15 * math.ceil((FIXED_MINUTES + MINUTES_GIB * estimate_size_gib(target)) / 15)


def fit_job(target: Target, job: Job) -> Job:
    """The site's job for builds, with more memory and time where the image needs more than its file foresees.

    Memory is only changed where the site's jobs ask for it, and never beyond what a node has.
    """
    longer = replace(job, minutes=max(job.minutes, estimate_minutes(target)))
    said = _GIB.fullmatch(job.options.get("mem", ""))
    if said is None:
        return longer
    most = int((target.site.node.memory_gib or 10**6) * USABLE_FRACTION)
    wanted = max(int(said[1]), min(estimate_memory_gib(target), most))
    return replace(longer, options={**job.options, "mem": f"{wanted}G"})


ENTER_SCRIPT_FOLDER = 'cd -- "$(dirname -- "${BASH_SOURCE[0]}")"'
# Slurm runs a copy of the script from its spool folder: the folder it was submitted from is the plan folder.
ENTER_SUBMIT_FOLDER = 'cd -- "${RECIPE_FOLDER:-${SLURM_SUBMIT_DIR:-.}}"'
NOTICE_SECONDS = 120  # seconds before the time limit at which a job is told; Slurm does it up to 60 s earlier


def make_proxy_lines(target: Target) -> list[str]:
    """The site's proxy for a build on its nodes, where the user's environment names none."""
    return [shell.quote_command(["default_proxy", name, value]) for name, value in target.site.network.proxy.items()]


def make_login_lines(target: Target) -> list[str]:
    """The login in the engine's variables is kept for the registry that it belongs to."""
    host, own = find_base_registry(target)
    return [shell.quote_command(["login_for", host, "site" if own else "recipe"])] if host else []


def make_step_script(target: Target, *, title: str, modules: Iterable[str], lines: Iterable[str]) -> str:
    """A script of one step, run as `bash NAME` from anywhere."""
    head = [
        "#!/usr/bin/env bash",
        shell.comment(title),
        shell.comment(f"Written by {target.context.tool} for '{target.recipe.name}' on {target.site.name}."),
        "set -eo pipefail",
        ENTER_SCRIPT_FOLDER,
        ". ./engine.sh",
        *make_module_lines(modules),
        "set -u",
        "",
    ]
    return "\n".join([*head, *lines]) + "\n"


def make_module_lines(modules: Iterable[str]) -> list[str]:
    """Lines that load modules; they stand before `set -u`, which Lmod's own code does not bear."""
    return [shell.quote_command(["use_module", *module.split()]) for module in modules]


def compute_notice(minutes: int) -> int:
    """Seconds before the time limit at which a job is told that its end is near: a short job lives for most of it."""
    return min(NOTICE_SECONDS, minutes * 15)


@dataclass(frozen=True, kw_only=True)
class JobScript:
    """A job script, and what it asks for."""

    file: File
    job: StepJob


def with_job(step: Step, script: JobScript | None) -> Step:
    """The step with its job, where there is one."""
    return step if script is None else replace(step, batch=script.file.path, job=script.job)


def files_of(*scripts: JobScript | None) -> tuple[File, ...]:
    """The files of the jobs that there are."""
    return tuple(script.file for script in scripts if script is not None)


def step_job(target: Target, job: Job, *, name: str) -> StepJob:
    """What a job of the site's asks for, for this target."""
    named = {"partition", "mem", "time", "account"}
    gpus = target.site.scheduler.gpu_option.replace("{gpus}", str(job.gpus)) if job.gpus else ""
    return StepJob(
        name=name,
        nodes=job.nodes,
        tasks_per_node=job.tasks_per_node,
        cpus_per_task=job.cpus_per_task or 0,
        gpus=gpus,
        minutes=job.minutes,
        notice=compute_notice(job.minutes),
        partition=job.options.get("partition", ""),
        memory=job.options.get("mem", ""),
        account=target.context.account or job.options.get("account", ""),
        options={option: value for option, value in job.options.items() if option not in named},
    )


def make_batch_header(job: StepJob) -> list[str]:
    """The #SBATCH lines of a job; every value was checked to hold no white space when its file was read."""
    options = job.sbatch_options.items()
    return [f"#SBATCH --{option}={value}" if value else f"#SBATCH --{option}" for option, value in options]


def parse_minutes(time: str) -> int:
    """Slurm's form of a time limit in minutes, rounded up; raises ValueError."""
    days, dash, rest = time.partition("-")
    parts = [int(part) for part in (rest if dash else days).split(":")]
    if dash:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        seconds += ((int(days) * 24 + hours) * 60 + minutes) * 60
    elif len(parts) == 3:
        seconds = (parts[0] * 60 + parts[1]) * 60 + parts[2]
    else:
        minutes, seconds = (*parts, 0)[:2]
        seconds += minutes * 60
    return -(-seconds // 60)


def make_batch_script(
    target: Target,
    site_job: Job,
    *,
    name: str,
    title: str,
    lines: Iterable[str],
    script: str,
    purpose: str = "run",
    shape: str = "",
    ranks: bool = False,
) -> JobScript:
    """A Slurm job of the plan folder, submitted from that folder; it leaves jobs/JOBID.json however it ends.

    `lines` do the work, `script` is the path of the file in the plan folder; with `ranks` the work is done by ranks
    that are told by a file when the time limit is near (`run/watch.sh`).
    """
    job = step_job(target, site_job, name=name)
    head = ["#!/usr/bin/env bash", *make_batch_header(job), shell.comment(title)]
    submit = " ".join(["sbatch", *target.site.scheduler.submit, *make_account_hint(target), "SCRIPT"])
    head += [shell.comment(f"Submit it from this folder: {submit}"), "set -eo pipefail"]
    head += ['self=$(readlink -f -- "${BASH_SOURCE[0]}")', ENTER_SUBMIT_FOLDER]
    head += ['[ -f plan.json ] || { echo "submit this script from its plan folder" >&2; exit 2; }']
    words = shell.quote_command([purpose, shape, script, str(job.notice), "ranks" if ranks else ""])
    head += [". ./record.sh", f'record_job "$self" {words} "$@"']
    if ranks:
        head += ['take_command "$@"', 'set -- "${words[@]}"']
    return JobScript(file=File(path=script, text="\n".join([*head, *lines]) + "\n"), job=job)


def make_build_job(target: Target, *, script: str, name: str, title: str, minutes: int = 0) -> JobScript | None:
    """The job that runs the script of a step on a node for builds; None where the site has no job for builds.

    `title` says what it does; the file has the script's name, with the ending of a job. `minutes`: the most it takes,
    where that is less than a build.
    """
    job = target.site.scheduler.jobs.get("build")
    if job is None:
        return None
    # What takes less than a build needs no more than the site's file says.
    job = replace(job, minutes=min(minutes, job.minutes)) if minutes else fit_job(target, job)
    step = script.split("-")[1].removesuffix(".sh")
    title = f"{title} on a compute node."
    path = f"{script.removesuffix('.sh')}.sbatch"
    work = [f"bash {script}"]
    return make_batch_script(target, job, name=f"{name}-{step}", title=title, lines=work, purpose=step, script=path)


def make_conda_override(target: Target) -> str:
    """What conda's solver is told of NVIDIA's GPUs, where it runs outside our own install.sh."""
    cuda = target.environment.cuda
    told = "the solver is told what the site's driver serves" if cuda else "the solver sees no NVIDIA GPU"
    return f"export CONDA_OVERRIDE_CUDA={shell.quote_word(cuda) if cuda else ''}  # {told}, whatever this machine has"


def isolate_caches(target: Target) -> list[str]:
    """What code of one recipe can write, no other build reads; where pip installs nothing, no login is in sight."""
    pip = target.environment.pip_lines or target.environment.torch_lines
    return ["own_caches", *([] if pip else [shell.quote_command(["unset", *INDEXES])])]


def make_account_hint(target: Target) -> list[str]:
    """What the user still has to say, as it is written into a shell: the account is never guessed."""
    if target.context.account or target.site.scheduler.account == "none":
        return []
    return [f"--account={shell.quote_word(target.site.scheduler.account_form or 'ACCOUNT')}"]


def list_runtime_commands(target: Target) -> tuple[str, str]:
    """The site's runtime first, the other name second: both names are used in the field."""
    first = target.site.runtime.command
    return first, "singularity" if first == "apptainer" else "apptainer"


def make_call(*words: Word) -> str:
    """One command line."""
    return shell.quote_command(words)
