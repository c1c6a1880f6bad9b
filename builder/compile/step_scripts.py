"""Step scripts and batch scripts, and the resources of a build job.

Scripts are bash made of quoted words, written for people to read as well. Memory and time of a build job follow from
the site and the size of the image.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from builder.compile import shell
from builder.compile.image_files import find_base_registry
from builder.model.plan import PlanFile, Step, StepJob, Word
from builder.model.secrets import INDEXES
from builder.model.site import Job
from builder.model.target import Target

TOOL_GIB = 8.0  # for the solver, pip and mksquashfs
MEMORY_STEP_GIB = 8  # memory requests are multiples of this
IMAGE_COPIES = 2.0  # of the unpacked image: itself and the packed one (LUMI: "at least twice", CSC's user guide)
FIXED_MINUTES, MINUTES_GIB = 15, 2.0  # to resolve and download; to install, compile and pack a GiB on a shared disk
USABLE_FRACTION = 0.93  # of a node's memory that jobs may use (LUMI: 480 of 512 GiB, 224 of 256)

_GIB = re.compile(r"(\d+)G")


def estimate_size_gib(target: Target) -> float:
    """Estimate the size of the unpacked image in GiB, cautiously: the kind of base image plus torch."""
    kind = 25.0 if target.base.family == "ngc-pytorch" else 12.0 if target.base.rocm or target.base.family else 1.0
    base = target.context.base_gib or kind
    torch = target.environment.torch
    fresh = 0.0 if torch is None or torch.provided else 2.0 if torch.token == "cpu" else 14.0
    return base + fresh + 1.0


def estimate_memory_gib(target: Target) -> int:
    """Estimate the memory of a build in GiB; twice the unpacked image if its temporary folder is in memory."""
    disk = IMAGE_COPIES * estimate_size_gib(target) if target.site.build.tmpdir_is == "memory" else 0.0
    return MEMORY_STEP_GIB * math.ceil((TOOL_GIB + disk) / MEMORY_STEP_GIB)


def estimate_minutes(target: Target) -> int:
    """Estimate the time of a build in minutes, generously."""
    return 15 * math.ceil((FIXED_MINUTES + MINUTES_GIB * estimate_size_gib(target)) / 15)


def fit_job(target: Target, job: Job) -> Job:
    """Give the site's build job more memory and time if the image needs them.

    Memory is changed only if the site's jobs request memory, and never beyond that of a node.
    """
    longer = replace(job, minutes=max(job.minutes, estimate_minutes(target)))
    said = _GIB.fullmatch(job.options.get("mem", ""))
    if said is None:
        return longer
    most = int((target.site.node.memory_gib or 10**6) * USABLE_FRACTION)
    wanted = max(int(said[1]), min(estimate_memory_gib(target), most))
    return replace(longer, options={**job.options, "mem": f"{wanted}G"})


ENTER_SCRIPT_FOLDER = 'cd -- "$(dirname -- "${BASH_SOURCE[0]}")"'
# Slurm runs a copy in its spool folder; the plan folder is the folder that it was submitted from.
ENTER_SUBMIT_FOLDER = 'cd -- "${RECIPE_FOLDER:-${SLURM_SUBMIT_DIR:-.}}"'
NOTICE_SECONDS = 120  # seconds before the time limit at which a job is signalled; Slurm may do it up to 60 s earlier


def make_proxy_lines(target: Target) -> list[str]:
    """Make the lines that set the site's proxy unless the user's environment has one."""
    return [shell.quote_command(["default_proxy", name, value]) for name, value in target.site.network.proxy.items()]


def make_login_lines(target: Target) -> list[str]:
    """Make the line that restricts the login in the engine's variables to the registry it belongs to."""
    host, own = find_base_registry(target)
    return [shell.quote_command(["login_for", host, "site" if own else "recipe"])] if host else []


def make_processor_lines(target: Target) -> list[str]:
    """Make the line that stops a build on other processors than the site's; its login nodes may have both kinds."""
    arch = target.site.node.arch
    return [make_call("for_processor", arch)] if arch != "x86_64" else []


def make_step_script(target: Target, *, title: str, modules: Iterable[str], lines: Iterable[str]) -> str:
    """Make the script of one step; it runs as `bash NAME` from any folder."""
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
    """Make the lines that load modules; they come before `set -u`, under which Lmod's code fails."""
    return [shell.quote_command(["use_module", *module.split()]) for module in modules]


def compute_notice(minutes: int) -> int:
    """Compute how many seconds before its time limit a job is signalled; less for short jobs."""
    return min(NOTICE_SECONDS, minutes * 15)


@dataclass(frozen=True, kw_only=True)
class JobScript:
    """A job script, and what it requests."""

    file: PlanFile
    job: StepJob


def attach_job(step: Step, script: JobScript | None) -> Step:
    """Return the step with its job, if it has one."""
    return step if script is None else replace(step, batch=script.file.path, job=script.job)


def list_job_files(*scripts: JobScript | None) -> tuple[PlanFile, ...]:
    return tuple(script.file for script in scripts if script is not None)


def make_step_job(target: Target, job: Job, *, name: str) -> StepJob:
    """Make the requests of a job of the site, for this target."""
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
    """Make the #SBATCH lines of a job; values were checked for white space when their file was read."""
    options = job.sbatch_options.items()
    return [f"#SBATCH --{option}={value}" if value else f"#SBATCH --{option}" for option, value in options]


def parse_minutes(time: str) -> int:
    """Parse Slurm's form of a time limit to minutes, rounded up; raises ValueError."""
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
    """Make a Slurm job of the plan folder; it writes jobs/JOBID.json however it ends.

    `lines` do the work, `script` is the path of the file in the plan folder. With `ranks` a file notifies the ranks
    that the time limit is near (`run/watch.sh`).
    """
    job = make_step_job(target, site_job, name=name)
    head = ["#!/usr/bin/env bash", *make_batch_header(job), shell.comment(title)]
    submit = " ".join(["sbatch", *target.site.scheduler.submit, *make_account_hint(target), "SCRIPT"])
    head += [shell.comment(f"Submit it from this folder: {submit}"), "set -eo pipefail"]
    head += ['self=$(readlink -f -- "${BASH_SOURCE[0]}")', ENTER_SUBMIT_FOLDER]
    head += ['[ -f plan.json ] || { echo "submit this script from its plan folder" >&2; exit 2; }']
    words = shell.quote_command([purpose, shape, script, str(job.notice), "ranks" if ranks else ""])
    head += [". ./record.sh", f'record_job "$self" {words} "$@"']
    if ranks:
        head += ['take_command "$@"', 'set -- "${words[@]}"']
    return JobScript(file=PlanFile(path=script, text="\n".join([*head, *lines]) + "\n"), job=job)


def make_build_job(target: Target, *, script: str, name: str, title: str, minutes: int = 0) -> JobScript | None:
    """Make the job that runs the script of a step on a node for builds; None if the site has no such job.

    `title` describes it; the file has the script's name with the suffix of a job. `minutes`: its upper limit if it
    takes less time than a build.
    """
    job = target.site.scheduler.jobs.get("build")
    if job is None:
        return None
    # A job shorter than a build keeps the resources of the site's file.
    job = replace(job, minutes=min(minutes, job.minutes)) if minutes else fit_job(target, job)
    step = script.split("-")[1].removesuffix(".sh")
    title = f"{title} on a compute node."
    path = f"{script.removesuffix('.sh')}.sbatch"
    work = [f"bash {script}"]
    return make_batch_script(target, job, name=f"{name}-{step}", title=title, lines=work, purpose=step, script=path)


def make_conda_override(target: Target) -> str:
    """Make the line that sets the CUDA version for conda's solver, if it runs outside our install.sh."""
    cuda = target.environment.cuda
    told = "the solver uses the CUDA of the site's driver" if cuda else "the solver sees no NVIDIA GPU"
    return f"export CONDA_OVERRIDE_CUDA={shell.quote_word(cuda) if cuda else ''}  # {told}, not that of this machine"


def isolate_caches(target: Target) -> list[str]:
    """Make the lines that isolate caches which a recipe's code can write, and remove logins that no pip needs."""
    pip = target.environment.pip_lines or target.environment.torch_lines
    return ["own_caches", *([] if pip else [shell.quote_command(["unset", *INDEXES])])]


def make_account_hint(target: Target) -> list[str]:
    """Make the account option that the user must complete; accounts are never guessed."""
    if target.context.account or target.site.scheduler.account == "none":
        return []
    return [f"--account={shell.quote_word(target.site.scheduler.account_form or 'ACCOUNT')}"]


def list_runtime_commands(target: Target) -> tuple[str, str]:
    """List the names of the site's runtime, its own first: sites use both names."""
    first = target.site.runtime.command
    return first, "singularity" if first == "apptainer" else "apptainer"


def make_call(*words: Word) -> str:
    return shell.quote_command(words)
