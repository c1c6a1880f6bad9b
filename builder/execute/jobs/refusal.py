"""Why Slurm does not take a job, or takes it and will never start it: one cause, one fix."""

from __future__ import annotations

import re

from builder.model.finding import Finding

_SPEAKER = re.compile(r"^(?:sbatch: )?(?:error: |fatal: )?(?:allocation failure: )?(?:Batch job submission failed: )?")

# What sbatch says (slurm_errno of 22.05 to 24.05), what it means, what to do.
REFUSALS: tuple[tuple[str, str, str, str], ...] = (
    (
        r"invalid partition(?: specified: (?P<what>\S+)| name)",
        "job-partition",
        "there is no partition '{what}' here",
        "choose one that `sinfo -s` lists, with --partition",
    ),
    (
        r"Invalid account or account/partition|Job's account not permitted|[Uu]ser's group not permitted"
        r"|account .*not (?:permitted|allowed|valid)|AssocGrp|must specify .*account|[Nn]o account",
        "job-account",
        "Slurm does not let this account use that partition, or none is given",
        "give your project's account with --account, or SBATCH_ACCOUNT (`sacctmgr show assoc user=$USER`)",
    ),
    (
        r"Invalid qos|qos .*not (?:permitted|allowed)|Job's QOS not permitted|Invalid QOS",
        "job-qos",
        "that quality of service is not yours",
        "choose another with --qos (`sacctmgr show qos`)",
    ),
    (
        r"Invalid --time specification|Invalid time limit",
        "job-time",
        "that is no time limit",
        "write minutes, or HH:MM:SS, or D-HH:MM:SS with --time",
    ),
    (
        r"time limit (?:is invalid|exceed)|Requested time limit is invalid|TimeLimit",
        "job-time",
        "the time limit is longer than the partition allows",
        "ask for less with --time, or choose another partition",
    ),
    (
        r"[Mm]emory specification can ?not be satisfied|Requested node configuration is not available"
        r"|More processors requested|Node count specification invalid|not enough nodes|Unable to satisfy",
        "job-size",
        "no node of that partition has the cores, the memory or the GPUs that the job asks for",
        "choose another partition with --partition, or fewer --nodes and --gpus",
    ),
    (
        r"[Ii]nvalid job array specification",
        "job-array",
        "an array of so many tasks is not taken",
        "build fewer at a time (`scontrol show config | grep MaxArraySize`)",
    ),
    (
        r"Job dependency problem|Invalid dependency",
        "job-dependency",
        "the job that --dependency names is not known",
        "check its number with squeue",
    ),
    (
        r"Unable to contact slurm controller|Unable to establish|fetch_config|configuration source",
        "no-slurm",
        "Slurm does not answer",
        "try again in a while; on a login node of the site it should",
    ),
    (
        r"limit|QOSMax|MaxSubmit|AssocMax",
        "job-limit",
        "a limit of your account or of the partition stands against it",
        "ask for less, or wait until other jobs of yours have ended",
    ),
)

# Why a job waits, when waiting does not help: Slurm takes such jobs and never starts them.
HOPELESS: tuple[tuple[str, str], ...] = (
    (r"PartitionTimeLimit|Requested time limit exceeds", "job-time"),
    (r"PartitionNodeLimit|BadConstraints|PartitionConfig|ReqNodeNotAvail, .*DOWN", "job-size"),
    (r"AccountNotAllowed|[Jj]ob's account not|InvalidAccount|AssocAccountNotAllowed", "job-account"),
    (r"InvalidQOS|QOSNotAllowed|[Jj]ob's QOS not", "job-qos"),
    (r"DependencyNeverSatisfied", "job-dependency"),
)


def refusal(text: str, *, step: str, timed_out: bool = False) -> Finding:
    """Explain what sbatch has said of the job of a step."""
    if timed_out:
        message = f"sbatch did not answer when the job of step '{step}' was submitted"
        fix = "look with `squeue --me` whether it is there, and cancel it with scancel"
        return Finding(code="no-slurm", message=message, fix=fix)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern, code, message, fix in REFUSALS:
        found = next((match for line in lines if (match := re.search(pattern, line))), None)
        if found is not None:
            what = (found.groupdict().get("what") or "").strip()
            said = _SPEAKER.sub("", found.string)
            told = message.format(what=what) if what else message.replace(" '{what}'", " of that name")
            return Finding(code=code, message=f"the job of step '{step}' is refused: {told} ({said})", fix=fix)
    said = _SPEAKER.sub("", lines[-1]) if lines else "sbatch said nothing"
    return Finding(
        code="job-refused",
        message=f"the job of step '{step}' is refused: {said[:200]}",
        fix="see what `sbatch --test-only` says of the script in the plan folder",
    )


def hopeless(reason: str, *, step: str, job: str) -> Finding | None:
    """Say that a waiting job will never start, None when it may."""
    for pattern, code in HOPELESS:
        if re.search(pattern, reason):
            message, fix = next((message, fix) for _, known, message, fix in REFUSALS if known == code)
            if "time" in pattern.lower():
                message, fix = next((m, f) for p, known, m, f in REFUSALS if known == code and "TimeLimit" in p)
            message = f"job {job} of step '{step}' would wait for ever: {message} ({reason.strip('()')})"
            return Finding(code=code, message=message.replace(" '{what}'", ""), fix=fix)
    return None
