"""Steps that test an image, and the workloads of a recipe's smoke test.

The torch check asks the image for its torch right after the build, for engines that do not ask during the build. The
smoke step repeats it and trains a small model on the devices of this machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from builder.compile import shell
from builder.compile.image_files import collect_run_variables, make_expectations, make_recipe_json, slugify
from builder.compile.render import read_template
from builder.compile.step_scripts import (
    JobScript,
    attach_job,
    list_job_files,
    make_batch_script,
    make_build_job,
    make_step_script,
)
from builder.model.plan import Copy, PlanFile, ShellExpr, Step, Word
from builder.model.site import Vendor
from builder.model.target import Target

TRAINING_WORKLOADS = ("mnist", "ddp")  # they read digits
DISTRIBUTED_WORKLOADS = ("probe", "ddp", "pi", "allreduce", "startup", "mpi")  # many ranks; the others are one process
MPI_WORKLOAD = "mpi"  # over the ranks of a site's launcher; needs no torch
MPI_LAUNCHERS = ("srun", "mpiexec")  # ranks of torchrun are no MPI ranks


def choose_workloads(target: Target) -> tuple[str, ...]:
    """Choose the workloads that use torch: the recipe's, else mnist and ddp if the image has torch."""
    chosen = target.recipe.container.smoke.workloads
    if chosen is not None:
        return tuple(name for name in chosen if name != MPI_WORKLOAD)
    return ("mnist", "ddp") if target.environment.torch is not None else ()


def choose_step_workloads(target: Target) -> tuple[str, ...]:
    """Choose the workloads of the smoke step; mpi only where no launcher has MPI ranks, as a world of one process."""
    chosen = target.recipe.container.smoke.workloads or ()
    alone = MPI_WORKLOAD in chosen and target.site.launch.launcher not in MPI_LAUNCHERS
    return (*choose_workloads(target), *((MPI_WORKLOAD,) if alone else ()))


def has_mpi_workload(target: Target) -> bool:
    """Whether the suite over many ranks proves their MPI: the recipe names it, or no workload and asks for mpi4py."""
    chosen = target.recipe.container.smoke.workloads
    named = MPI_WORKLOAD in chosen if chosen is not None else target.recipe.uses_mpi
    return named and target.site.launch.launcher in MPI_LAUNCHERS


MPI_MODULE = "mpi4py.MPI"  # loads the MPI, which the package itself does not


def list_imports(target: Target) -> tuple[str, ...]:
    """List the modules that the smoke step imports: the recipe's, and mpi4py's MPI if it is not the host's."""
    recipe = target.recipe
    own = (MPI_MODULE,) if recipe.uses_mpi and not target.site.brings_mpi else ()
    return tuple(dict.fromkeys((*recipe.container.smoke.imports, *own)))


TORCH_CHECK_FILE = "proof.json"


def make_inside_line(target: Target) -> str:
    """Define `inside`: run a command in the image with this folder as its working folder; needs run/container.sh.

    Every image has /mnt.
    """
    if target.traits.makes_folder:
        return 'inside() { in_image "$@"; }'
    call = '"$runtime" exec "${options[@]}" --bind "$PWD:/mnt" --pwd /mnt "$image" "$@"'
    return (
        f"inside() {{ (image_variables && exec {call}); }}"
        if collect_run_variables(target)
        else f"inside() {{ {call}; }}"
    )


def make_torch_check_step(target: Target, *, name: str) -> tuple[Step, tuple[PlanFile, ...]]:
    """Make the step with its script and job; question and expected answer are files of the smoke test."""
    lines = [
        "image_alone",
        ". run/container.sh",
        make_inside_line(target),
        f"rm -f {TORCH_CHECK_FILE}",
        "# The log has a wrong answer; the file exists only if the image matches the plan.",
        f"inside python3 -B verify.py recipe.json {TORCH_CHECK_FILE} || {{",
        f"    rm -f {TORCH_CHECK_FILE}",
        "    exit 1",
        "}",
    ]
    script, title = "2-verify.sh", "Asks the image for its torch"
    text = make_step_script(target, title=f"{title}; needs no GPU.", modules=target.site.runtime.modules, lines=lines)
    job = make_build_job(target, script=script, name=name, title=title, minutes=15)
    step = Step(
        name="verify",
        kind="verify",
        why=_describe_torch_check(target),
        script=script,
        produces=(TORCH_CHECK_FILE,),
    )
    return attach_job(step, job), (PlanFile(path=script, text=text, executable=True), *list_job_files(job))


def _describe_torch_check(target: Target) -> str:
    if target.environment.torch is not None:
        return "ask the image whether it holds the planned torch"
    if target.site.vendor == "cpu":
        return "there is no torch to ask for"
    return "ask the image whether a package has brought a torch of another build"


# A device file shows that this machine has a GPU of the vendor, without any library.
DEVICE_FILES: dict[Vendor, str] = {"amd": "/dev/kfd", "nvidia": "/dev/nvidiactl", "intel": "/dev/dri/renderD128"}


def make_smoke_step(target: Target, *, script: str) -> tuple[Step, tuple[PlanFile, ...]]:
    """Make the step with its script, and the job that runs it on a node with a GPU.

    Its products are the results of the workloads, which are judged again when they are read.
    """
    step = Step(
        name="smoke",
        kind="smoke",
        why=_describe_smoke_step(target),
        script=script,
        produces=_list_results(target),
    )
    files = (
        PlanFile(path=script, text=make_smoke_script(target), executable=True),
        PlanFile(path="verify.py", text=read_template("verify.py")),
        PlanFile(path="recipe.json", text=make_recipe_json(target)),
    )
    job = _make_smoke_job(target, script=script)
    return attach_job(step, job), (*files, *list_job_files(job))


def _list_results(target: Target) -> tuple[str, ...]:
    """List the results of the smoke step; each is left whatever fails first."""
    imports = ["smoke-imports.json"] if list_imports(target) else []
    return ("verify.json", *imports, *(f"smoke-{name}.json" for name in choose_step_workloads(target)))


def _describe_smoke_step(target: Target) -> str:
    """Describe what the step really does: without torch nothing is trained unless the recipe names workloads."""
    if choose_workloads(target):
        return "train in the image and judge the numbers"
    if choose_step_workloads(target):
        return "exchange values by MPI in the image"
    if list_imports(target):
        return "import modules in the image"
    return "start Python in the image; there is nothing to train without torch"


def _make_smoke_job(target: Target, *, script: str) -> JobScript | None:
    """The job of the step, None where the site has no job for one GPU.

    It has the environment of `run/gpu.sbatch`: variables, devices, folders on the node.
    """
    from builder.compile.launch.launchers import make_one_task  # `recipe check` makes no scripts
    from builder.compile.launch.settings import list_local_folders

    job = target.site.scheduler.jobs.get("gpu")
    if job is None:
        return None
    call = make_one_task(target, job)
    lines = [
        f"bash {script} begin",
        "# Whatever ends the job: each result that is missing then says why.",
        f"trap 'bash {script} end $?' EXIT",
        ". run/job.sh",
        *call.before,
        *([". run/local.sh", "make_local_folders"] if list_local_folders(target) else []),
        "export RECIPE_EXPECT_GPU=yes",
        *call.start("bash", script, "test", arguments=False),
    ]
    return make_batch_script(
        target,
        job,
        name=f"{slugify(target.recipe.name)}-smoke",
        title=f"The smoke test on one device of {target.site.title}.",
        lines=lines,
        purpose="smoke",
        script=script.replace(".sh", ".sbatch"),
    )


def list_smoke_copies() -> tuple[Copy, ...]:
    return (Copy(source="smoke", path="smoke", bundled=True),)


def make_smoke_script(target: Target) -> str:
    """Make the script that runs every part even if one fails; the results name the failures."""
    answer = json.dumps(make_expectations(target), sort_keys=True)
    left = shell.quote_command(["leave_results", answer, ShellExpr("${reason}"), *_list_results(target)])
    lines = [
        "# begin: forgets older results. end CODE: leaves those that are missing. Without either it tests.",
        "results_folder .",
        'case "${1:-}" in begin | "") rm -f "$results"/verify.json "$results"/smoke-*.json ;; esac',
        'if [ "${1:-}" = begin ]; then exit 0; fi',
        "conclude() {",
        '    local reason="${failed_because:-the smoke test ended with exit code $1 before this was tested}"',
        *[f"    {line}" for line in left.splitlines()],
        "}",
        'if [ "${1:-}" = end ]; then',
        '    conclude "${2:-1}"',
        "    exit 0",
        "fi",
        "trap 'conclude $?' EXIT",
        "image_alone",
        ". run/container.sh",
        "arguments=()",
        make_inside_line(target),
        "failed=0",
        'inside python3 -B verify.py recipe.json "$results/verify.json" || failed=1',
        *(["ranks=2"] if _is_distributed(target) else []),
        *_make_expectation(target),
        *_make_workload_lines(target),
        'exit "$failed"',
    ]
    return make_step_script(
        target, title="Smoke test: trains in the image and judges the numbers.", modules=(), lines=lines
    )


def _make_workload_lines(target: Target) -> Iterator[str]:
    """A line for the imports and one for each workload; a part that fails does not stop the others."""
    imports = list_imports(target)
    if imports:
        result = ShellExpr("${results}/smoke-imports.json")
        words: list[Word] = ["inside", "python3", "-B", "smoke", "imports", "--result", result, *imports]
        yield shell.quote_command(words) + " || failed=1"
    for name in choose_step_workloads(target):
        more = " --alone" if name == MPI_WORKLOAD else ' --ranks "$ranks"' if name in DISTRIBUTED_WORKLOADS else ""
        more += ' "${digits[@]}"' if name in TRAINING_WORKLOADS else ""
        more += ' --started "$(date +%s.%N)"' if name == "startup" else ""
        more += f' --result "$results/smoke-{name}.json"'
        more += ' "${arguments[@]}"' if name != MPI_WORKLOAD else ""
        yield f"inside python3 -B smoke {name}{more} || failed=1"


def _is_distributed(target: Target) -> bool:
    return any(name in DISTRIBUTED_WORKLOADS for name in choose_workloads(target))


def _make_expectation(target: Target) -> list[str]:
    """Require the site's GPUs on a machine that has them; elsewhere the training runs on CPUs and says so."""
    vendor = target.site.vendor
    if vendor == "cpu":
        return ["arguments+=(--device cpu)"]
    ranks = [
        "    # One rank per device: NCCL does not allow two.",
        "    ranks=$(inside python3 -B smoke devices | tail -n 1) || ranks=1",
        '    if [ "${ranks:-0}" -lt 1 ]; then ranks=1; fi',
    ]
    does = "trains" if any(name in TRAINING_WORKLOADS for name in choose_step_workloads(target)) else "runs"
    return [
        f'if [ "${{RECIPE_EXPECT_GPU:-no}}" = yes ] || [ -e {DEVICE_FILES[vendor]} ]; then',
        f"    arguments+=(--expect-vendor {vendor})",
        *(ranks if _is_distributed(target) else []),
        "else",
        f"    echo 'recipe: no {vendor} GPU here: the smoke test {does} on the CPU; run it on a GPU node too'",
        "    arguments+=(--device cpu)",
        "fi",
    ]
