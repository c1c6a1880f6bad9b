"""Several plans of one site as Slurm arrays: one array per step, one task per plan.

Each step has its own array because a build and its smoke test need different partitions, sizes and GPUs; the tasks of
an array follow those of the previous one one by one (aftercorr). Each task runs the plan's own job script, and its
outputs are those of the plan submitted alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from builder.compile import shell
from builder.compile.launch.shape import parse_kibibytes
from builder.compile.step_scripts import ENTER_SUBMIT_FOLDER, compute_notice, make_batch_header
from builder.model.plan import Plan, PlanFile, Step, StepJob
from builder.model.site import Site

MAX_TASKS = 10  # default number of parallel tasks, for the load on a shared disk

_ORDER = ("build", "save", "convert", "verify", "smoke", "run")


@dataclass(frozen=True, kw_only=True)
class ArrayTask:
    """A plan and the name of its folder, which is next to the arrays; its index in their list is its task number."""

    folder: str
    plan: Plan

    def find_step(self, name: str) -> Step | None:
        """Find the step of this name that has a job."""
        return next((step for step in self.plan.steps if step.name == name and step.batch), None)


def make_array_plan(site: Site, tasks: Sequence[ArrayTask], *, most: int = MAX_TASKS) -> Plan:
    """Make the array scripts for the plans of one site, as a plan whose steps are arrays.

    Its folder is the parent of the plan folders. `most` is the number of tasks that run at a time.
    """
    first = tasks[0].plan
    found = {step.name: step for task in tasks for step in task.plan.steps if step.batch}
    ordered = sorted(found.values(), key=lambda step: (_ORDER.index(step.kind), step.name))
    steps = tuple(
        Step(
            name=step.name,
            kind=step.kind,
            why=f"step '{step.name}' of {len(tasks)} plans",
            script=f"array-{site.name}-{number}-{step.name}.sbatch",
            batch=f"array-{site.name}-{number}-{step.name}.sbatch",
            job=_merge_jobs(site, tasks, step, most=most),
        )
        for number, step in enumerate(ordered, start=1)
    )
    files = [PlanFile(path=step.batch, text=_make_array_script(site, tasks, step)) for step in steps]
    chain = PlanFile(path=f"array-{site.name}.sh", text=_make_chain_script(site, tasks, steps), executable=True)
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


def _make_array_script(site: Site, tasks: Sequence[ArrayTask], step: Step) -> str:
    """Make the script of one array: it enters the plan folder of its task and runs the plan's job script there."""
    scripts = [found.batch if (found := task.find_step(step.name)) else "" for task in tasks]
    assert step.job is not None, "a step of an array is a job"
    submit = " ".join(["sbatch", *site.scheduler.submit, *_account(site, step.job), step.batch])
    lines = [
        "#!/usr/bin/env bash",
        *make_batch_header(step.job),
        shell.comment(f"Step '{step.name}' of every plan below, one task each; a failure does not affect the others."),
        shell.comment(f"Submit it from this folder: {submit}"),
        shell.comment(f"All steps, each task after its previous step: bash array-{site.name}.sh"),
        "set -eo pipefail",
        ENTER_SUBMIT_FOLDER,
        f"folders=({shell.quote_command(task.folder for task in tasks)})",
        f"scripts=({shell.quote_command(scripts)})",
        "task=${SLURM_ARRAY_TASK_ID:?submit this script with sbatch}",
        "folder=${folders[$task]} script=${scripts[$task]}",
        '[ -n "$script" ] || exit 0 # a plan without this step',
        '[ -f "$folder/plan.json" ] || { echo "submit this script next to the folder $folder" >&2; exit 2; }',
        'cd -- "$folder"',
        "export RECIPE_FOLDER=$PWD",
        'if [ -n "${RECIPE_RESULTS:-}" ]; then export RECIPE_RESULTS=$RECIPE_RESULTS/$folder; fi',
        "log=$SLURM_JOB_NAME-${SLURM_ARRAY_JOB_ID}_$task.log",
        'if { : >>"$log"; } 2>/dev/null; then',
        '    echo "$folder: $script; its output is in $folder/$log"',
        '    exec >>"$log" 2>&1',
        "fi",
        "# exec: Slurm signals this process when the time limit is near.",
        'exec bash "$script"',
    ]
    return "\n".join(lines) + "\n"


def _merge_jobs(site: Site, tasks: Sequence[ArrayTask], step: Step, *, most: int) -> StepJob:
    """Merge the jobs of the plans for one step; time limit and memory are the largest of them."""
    own = [found.job for task in tasks if (found := task.find_step(step.name)) and found.job]
    minutes = max(job.minutes for job in own)
    return replace(
        own[0],
        name=f"{site.name}-{step.name}",
        log="%x-%A_%a.log",
        array=f"0-{len(tasks) - 1}%{most}",
        minutes=minutes,
        notice=compute_notice(minutes),
        memory=max((job.memory for job in own), key=parse_kibibytes) if own[0].memory else "",
    )


def _account(site: Site, job: StepJob) -> list[str]:
    if site.scheduler.account == "none" or job.account:
        return []
    return [f"--account={shell.quote_word(site.scheduler.account_form or 'ACCOUNT')}"]


def _make_chain_script(site: Site, tasks: Sequence[ArrayTask], steps: Sequence[Step]) -> str:
    """Make the script that submits the arrays by hand, as a chain."""
    lead = [step for task in tasks for step in task.plan.steps if not step.batch]
    lines = [
        "#!/usr/bin/env bash",
        shell.comment(
            f"Submits all plans of this folder for {site.name}: one array per step, tasks follow one another."
        ),
        shell.comment("Options are passed to every sbatch: bash array-NAME.sh --account=ACCOUNT"),
    ]
    if lead:
        scripts = " and ".join(dict.fromkeys(f"'bash {step.script}'" for step in lead))
        lines.append(shell.comment(f"Run first, in every plan folder, on a machine with the programs: {scripts}"))
    lines += ["set -euo pipefail", 'cd -- "$(dirname -- "${BASH_SOURCE[0]}")"', "after=()"]
    for step in steps:
        words = shell.quote_command(["sbatch", "--parsable", *site.scheduler.submit])
        lines.append(f'job=$({words} "$@" "${{after[@]}}" {shell.quote_word(step.batch)})')
        lines.append(f'echo "array ${{job%%;*}}: {step.name}"')
        if step.kind != "smoke":
            lines.append('after=("--dependency=aftercorr:${job%%;*}" --kill-on-invalid-dep=yes)')
    return "\n".join(lines) + "\n"
