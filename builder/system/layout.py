"""Names of files and folders in a plan folder."""

import re
from pathlib import Path

from builder.model.finding import ConfigError, Finding

PLAN_FILE = "plan.json"
REPORT_FILE = "report.json"
LOGS = "logs"
LOCK_FILE = ".lock"
STATE_FILE = ".state.json"
SOURCES_FILE = ".sources"  # which files of this machine the copies are of
OLD_FILE = ".old.json"  # products of a plan that the folder held before
KEPT_FILE = ".kept.json"  # the report of the image that is there, of an earlier build than the last
STAGING = ".recipe-"  # in the names of new plan folders, before the mark of the process that writes one
WRITTEN_FILE = ".written.json"  # what the plan wrote there, by its digests
USER_SETTINGS = "run/site.env"  # variables of the user's own, which no plan writes
OWN_PACKAGES = "image/local/"  # where the copies of packages in folders of the recipe are
README_FILE = "README.md"
SMOKE_FILE = re.compile(r"smoke-(?P<name>[\w.-]+)\.json")  # the result of a workload of a build
RESULTS = "results"  # results/SHAPE/WORKLOAD.json
VERDICT_FILE = "verdict.json"  # of a shape, over its workloads
JOBS = "jobs"  # jobs/JOBID.json
KITS_FILE = "kits.json"  # next to several plan folders
SUBMITTED_FILE = "submitted.json"

MADE_OF = "made-of.json"  # what the program that makes layers leaves in the plan folder
PROOF_FILE = "proof.json"  # what an image has answered that a step of its own has asked
EVENTS = ".events.jsonl"  # behind the number of a job: what its programs report

# Codes of builds whose image is not what was planned.
PROOF = ("not-as-planned", "base-replaced", "gpu-audit")
DIFFERENT = "not-the-same"  # of a second build with other bytes
AGAIN = "again"  # the folder of a second build as jobs, and the prefix of its steps


def name_failed_copy(output: Path) -> Path:
    """Where an image goes that the smoke test failed in."""
    return output.with_name(f"{output.name}.failed")


def plan_folder(image: Path) -> Path:
    """Return the plan folder of an image, next to it; raises ConfigError for a path without a name."""
    if image.name in ("", ".."):
        message, fix = f"'{image}' is a folder, and the image is a file", "name a file in it, as in -o NAME.sif"
        raise ConfigError(Finding(code="output-kind", message=message, fix=fix))
    return image.with_name(f"{image.name.removesuffix('.sif')}.plan")
