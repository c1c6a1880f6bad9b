"""Many kits of one site as Slurm arrays: a step of all of them is one array, a task a kit.

A step keeps its own array, since a build and its smoke test want other partitions, sizes and GPUs; the tasks of one
follow those of the other one by one (aftercorr). Each task runs the kit's own job script, and what it leaves is as if
the kit had been submitted alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from builder.compile import shell
from builder.compile.scripts import ENTER_SUBMIT_FOLDER, compute_notice, make_batch_header
from builder.model.plan import File, Plan, Step
from builder.model.site import Site
from builder.model.step_job import StepJob

MAX_TASKS = 10  # tasks at a time, unless someone says so: a shared disk bears that many builds

_ORDER = ("build", "save", "convert", "verify", "smoke", "run")
_UNITS = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}
_MEMORY = re.compile(r"(\d+)([KMGT]?)")


@dataclass(frozen=True, kw_only=True)
class PlannedFolder:
    """A plan, and the name of its folder beside the arrays; its place in their list is the number of its task."""

    folder: str
    plan: Plan

    def step(self, name: str) -> Step | None:
        """A step that has a job."""
        return next((step for step in self.plan.steps if step.name == name and step.batch), None)


def make_array_plan(site: Site, kits: Sequence[PlannedFolder], *, most: int = MAX_TASKS) -> Plan:
    """The array scripts of kits of one site, as a plan whose steps are arrays.

    Its folder is the one that holds the kits. `most` is how many tasks run at a time.
    """
    first = kits[0].plan
    found = {step.name: step for kit in kits for step in kit.plan.steps if step.batch}
    ordered = sorted(found.values(), key=lambda step: (_ORDER.index(step.kind), step.name))
    steps = tuple(
        Step(
            name=step.name,
            kind=step.kind,
            why=f"step '{step.name}' of {len(kits)} kits",
            script=f"array-{site.name}-{number}-{step.name}.sbatch",
            batch=f"array-{site.name}-{number}-{step.name}.sbatch",
            job=_array_job(site, kits, step, most=most),
        )
        for number, step in enumerate(ordered, start=1)
    )
    files = [File(path=step.batch, text=_script(site, kits, step)) for step in steps]
    chain = File(path=f"array-{site.name}.sh", text=_chain(site, kits, steps), executable=True)
    return Plan(
        target=site.name,
        recipe="array",
        site=site.name,
        backend=first.backend,
        vendor=first.vendor,
        image="",
        image_kind="sif",
        base="",
        steps=steps,
        files=(*files, chain),
        tool=first.tool,
    )


def _script(site: Site, kits: Sequence[PlannedFolder], step: Step) -> str:
    """One array: goes into the kit of its task and becomes the kit's own job script."""
    scripts = [found.batch if (found := kit.step(step.name)) else "" for kit in kits]
    assert step.job is not None, "a step of an array is a job"
    submit = " ".join(["sbatch", *site.scheduler.submit, *_account(site, step.job), step.batch])
    lines = [
        "#!/usr/bin/env bash",
        *make_batch_header(step.job),
        shell.comment(f"Step '{step.name}' of every kit below, each a task; one that fails touches no other."),
        shell.comment(f"Submit it from this folder: {submit}"),
        shell.comment(f"All steps, each task after its own of the step before: bash array-{site.name}.sh"),
        "set -eo pipefail",
        ENTER_SUBMIT_FOLDER,
        f"kits=({shell.quote_command(kit.folder for kit in kits)})",
        f"scripts=({shell.quote_command(scripts)})",
        "task=${SLURM_ARRAY_TASK_ID:?submit this script with sbatch}",
        "kit=${kits[$task]} script=${scripts[$task]}",
        '[ -n "$script" ] || exit 0 # a kit without this step',
        '[ -f "$kit/plan.json" ] || { echo "submit this script from the folder that holds $kit" >&2; exit 2; }',
        'cd -- "$kit"',
        "export RECIPE_FOLDER=$PWD",
        'if [ -n "${RECIPE_RESULTS:-}" ]; then export RECIPE_RESULTS=$RECIPE_RESULTS/$kit; fi',
        "log=$SLURM_JOB_NAME-${SLURM_ARRAY_JOB_ID}_$task.log",
        'if { : >>"$log"; } 2>/dev/null; then',
        '    echo "$kit: $script; what it says is in $kit/$log"',
        '    exec >>"$log" 2>&1',
        "fi",
        "# In its place: Slurm tells this process when the time limit is near.",
        'exec bash "$script"',
    ]
    return "\n".join(lines) + "\n"


def _array_job(site: Site, kits: Sequence[PlannedFolder], step: Step, *, most: int) -> StepJob:
    """What the kits' own jobs of a step ask for, with the most time and memory of them."""
    own = [found.job for kit in kits if (found := kit.step(step.name)) and found.job]
    minutes = max(job.minutes for job in own)
    return replace(
        own[0],
        name=f"{site.name}-{step.name}",
        log="%x-%A_%a.log",
        array=f"0-{len(kits) - 1}%{most}",
        minutes=minutes,
        notice=compute_notice(minutes),
        memory=max((job.memory for job in own), key=_mebibytes) if own[0].memory else "",
    )


def _mebibytes(size: str) -> float:
    match = _MEMORY.fullmatch(size)
    return int(match[1]) * _UNITS[match[2]] if match else 0.0


def _account(site: Site, job: StepJob) -> list[str]:
    if site.scheduler.account == "none" or job.account:
        return []
    return [f"--account={shell.quote_word(site.scheduler.account_form or 'ACCOUNT')}"]


def _chain(site: Site, kits: Sequence[PlannedFolder], steps: Sequence[Step]) -> str:
    """Submits the arrays by hand, as a chain."""
    lead = [step for kit in kits for step in kit.plan.steps if not step.batch]
    lines = [
        "#!/usr/bin/env bash",
        shell.comment(f"Submits all kits of this folder for {site.name}: an array a step, each task after its own."),
        shell.comment("What is given goes to every sbatch: bash array-NAME.sh --account=ACCOUNT"),
    ]
    if lead:
        scripts = " and ".join(dict.fromkeys(f"'bash {step.script}'" for step in lead))
        lines.append(shell.comment(f"Before it, in every kit, where its programs are: {scripts}"))
    lines += ["set -euo pipefail", 'cd -- "$(dirname -- "${BASH_SOURCE[0]}")"', "after=()"]
    for step in steps:
        words = shell.quote_command(["sbatch", "--parsable", *site.scheduler.submit])
        lines.append(f'job=$({words} "$@" "${{after[@]}}" {shell.quote_word(step.batch)})')
        lines.append(f'echo "array ${{job%%;*}}: {step.name}"')
        if step.kind != "smoke":
            lines.append('after=("--dependency=aftercorr:${job%%;*}" --kill-on-invalid-dep=yes)')
    return "\n".join(lines) + "\n"
