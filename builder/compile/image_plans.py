"""Plans for an existing image: its smoke test, a command of the user in it, its conversion from an archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from builder.compile.backends.docker import make_convert_job, make_convert_script
from builder.compile.compile import make_job_files, make_suite_step
from builder.compile.image_files import make_expectations, slugify
from builder.compile.launch import choose_job, make_run_files, make_shape_script
from builder.compile.launch.suite_scripts import make_local_script
from builder.compile.render import read_template
from builder.compile.smoke_step import MPI_WORKLOAD, list_smoke_copies, make_smoke_step
from builder.compile.step_scripts import attach_job, list_job_files, list_runtime_commands
from builder.model.plan import Plan, PlanFile, Step
from builder.model.recipe import Container, Recipe, Smoke, Workload
from builder.model.site import Site
from builder.model.target import Context, Environment, Target, Torch
from builder.resolve.own_machine import apply_machine

UNPACK_FACTOR = 3.0  # size of a Docker archive and its unpacked content, relative to the archive


def make_image_target(
    site: Site, *, image: str, context: Context, folder: bool = False, workloads: tuple[Workload, ...] | None = None,
    imports: tuple[str, ...] = (),
) -> Target:  # fmt: skip
    """Make the target of an image without a recipe; `image` is its absolute path, a folder under tykky."""
    name = PurePosixPath(image).stem
    site = apply_machine(site, context.gpu)
    smoke = Smoke(workloads=workloads, imports=imports)
    needs_torch = workloads is None or set(workloads) - {MPI_WORKLOAD}
    torch = Torch(version="", provided=True) if needs_torch else None  # any build on a site of CPUs
    return Target(
        recipe=Recipe(name=name, file=image, digest="", folder="", kind="pip", container=Container(smoke=smoke)),
        site=site,
        backend="tykky" if folder else "apptainer",
        base=site.base_images[0],
        environment=Environment(place="venv", torch=torch),
        context=context,
    )


def make_smoke_plan(target: Target, *, nodes: int | None = None, devices: int | None = None) -> Plan:
    """Make a plan that only tests an image: on one device, or with the suite on the given nodes or devices of each."""
    script = "1-smoke.sh"
    step, made = make_smoke_step(target, script=script)
    files, step = list(made), replace(step, programs=list_runtime_programs(target))
    if nodes is not None or devices is not None:
        file, step = make_suite_step(target, number=1, nodes=nodes, devices=devices)
        files.append(file)
    return _plan(target, purpose="smoke", step=step, files=(*files, *_make_shared_files(target)), smoke=True)


def make_run_plan(target: Target, *, nodes: int | None = None, devices: int | None = None, here: bool) -> Plan:
    """Make a plan with one step, the user's command: as a job of that shape, or on this machine with `here`."""
    script = None
    if here:
        ranks = devices is not None
        file = PlanFile(path=f"run/{'ranks' if ranks else 'one'}.sh", text=make_local_script(target, ranks=ranks))
    else:
        purpose, job = choose_job(target, nodes=nodes, devices=devices)
        name = f"{slugify(target.recipe.name)}-run"
        script = make_shape_script(target, job, purpose=purpose, name=name, script="1-run.sbatch")
        file = script.file
    programs = list_runtime_programs(target) if here else ()
    step = Step(name="run", kind="run", why="run the command that is given", script=file.path, programs=programs)
    step = attach_job(step, script)
    around = tuple(other for other in _make_shared_files(target) if other.path != file.path)
    return _plan(target, purpose="run", step=step, files=(file, *around), smoke=True)


def list_runtime_programs(target: Target) -> tuple[str, ...]:
    """List the programs that running an image needs on PATH; none if modules or tykky's wrappers provide them."""
    runtime = target.site.runtime
    return (
        ()
        if target.traits.makes_folder or runtime.modules or runtime.run_modules
        else ("|".join(list_runtime_commands(target)),)
    )


def make_convert_plan(target: Target, *, archive: str, archive_gib: float) -> Plan:
    """Make a plan that converts a docker-archive to a SIF; `archive` is its absolute path."""
    image = f"{slugify(target.recipe.name)}.sif"
    script, batch = "1-convert.sh", "1-convert.sbatch"
    name = f"{slugify(target.recipe.name)}-convert"
    text = make_convert_script(target, archive=archive, image=image)
    files = [
        PlanFile(path=script, text=text, executable=True),
        PlanFile(path="engine.sh", text=read_template("engine.sh")),
        *make_job_files(target),
    ]
    job = make_convert_job(target, archive=archive, image=image, name=name, script=batch)
    files += list_job_files(job)
    step = Step(
        name="convert",
        kind="convert",
        why=f"convert {PurePosixPath(archive).name} to {image}",
        script=script,
        produces=(image,),
        programs=("|".join(list_runtime_commands(target)),),
        space_gib=archive_gib * UNPACK_FACTOR,
    )
    return _plan(target, purpose="convert", step=attach_job(step, job), files=tuple(files), image=image, base=archive)


def _make_shared_files(target: Target) -> tuple[PlanFile, ...]:
    return (
        PlanFile(path="engine.sh", text=read_template("engine.sh")),
        *make_run_files(target),
        *make_job_files(target),
    )


def _plan(
    target: Target,
    *,
    purpose: str,
    step: Step,
    files: tuple[PlanFile, ...],
    smoke: bool = False,
    image: str = "",
    base: str = "",
) -> Plan:
    return Plan(
        target=f"{target.recipe.name}.{target.site.name}.{purpose}",
        recipe=target.recipe.name,
        site=target.site.name,
        backend=target.backend,
        vendor=target.site.vendor,
        image=image or target.recipe.file,
        image_kind="folder" if target.traits.makes_folder else "sif",
        base=base,
        steps=(step,),
        files=files,
        copies=list_smoke_copies() if smoke else (),
        expect=make_expectations(target) if smoke else {},
        tool=target.context.tool,
        tmpdir=target.site.build.tmpdir,
    )
