"""Names of files and folders in a plan folder."""

from pathlib import Path

from builder.model.finding import ConfigError, Finding

PLAN_FILE = "plan.json"
REPORT_FILE = "report.json"
LOGS = "logs"
LOCK_FILE = ".lock"
STATE_FILE = ".state.json"
SOURCES_FILE = ".sources"  # which files of this machine the copies are of
OLD_FILE = ".old.json"  # products of a plan that the folder held before
WRITTEN_FILE = ".written.json"  # what the plan wrote there, by its digests
USER_SETTINGS = "run/site.env"  # variables of the user's own, which no plan writes
README_FILE = "README.md"
RESULTS = "results"  # results/SHAPE/WORKLOAD.json
VERDICT_FILE = "verdict.json"  # of a shape, over its workloads
JOBS = "jobs"  # jobs/JOBID.json
KITS_FILE = "kits.json"  # next to several plan folders
SUBMITTED_FILE = "submitted.json"

PROOF_FILE = "proof.json"  # what an image has answered that a step of its own has asked
EVENTS = ".events.jsonl"  # behind the number of a job: what its programs report

# Codes of builds whose image is not what was planned.
PROOF = ("not-as-planned", "base-replaced", "gpu-audit")
DIFFERENT = "not-the-same"  # of a second build with other bytes
AGAIN = "again"  # the folder of a second build as jobs, and the prefix of its steps


def plan_folder(image: Path) -> Path:
    """Return the plan folder of an image, next to it; raises ConfigError for a path without a name."""
    if image.name in ("", ".."):
        message, fix = f"'{image}' is a folder, and the image is a file", "name a file in it, as in -o NAME.sif"
        raise ConfigError(Finding(code="output-kind", message=message, fix=fix))
    return image.with_name(f"{image.name.removesuffix('.sif')}.plan")
