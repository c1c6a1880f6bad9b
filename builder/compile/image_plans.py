"""Plans around an image that exists: its smoke test, a command of the user's in it, its conversion from an archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from builder.compile.backends.docker import convert_job, convert_script
from builder.compile.compile import job_files
from builder.compile.image_files import expected, slug
from builder.compile.launch import run_files, shape_of, shape_script
from builder.compile.launch.jobs import here_script
from builder.compile.render import verbatim
from builder.compile.scripts import files_of, runtime_command, with_job
from builder.compile.smoke_step import smoke_copies, smoke_step
from builder.compile.suite_step import suite_job
from builder.model.plan import File, Plan, Step
from builder.model.recipe import Container, Recipe, Smoke, Workload
from builder.model.site import Site
from builder.model.target import Context, Environment, Target, Torch

UNPACKED = 3.0  # an archive of Docker's and what is unpacked of it, in times of the archive


def image_target(
    site: Site, *, image: str, context: Context, folder: bool = False, workloads: tuple[Workload, ...] | None = None
) -> Target:
    """The target of an image whose recipe is not known: `image` is its absolute path, a folder under tykky."""
    name = PurePosixPath(image).stem
    smoke = Smoke(workloads=workloads)
    return Target(
        recipe=Recipe(name=name, file=image, digest="", folder="", kind="pip", container=Container(smoke=smoke)),
        site=site,
        backend="tykky" if folder else "apptainer",
        base=site.base_images[0],
        environment=Environment(place="venv", torch=Torch(version="")),
        context=context,
    )


def smoke_plan(target: Target, *, nodes: int | None = None, devices: int | None = None) -> Plan:
    """A plan that only tests an image: on one device, or the suite over so many nodes or devices of each."""
    script = "1-smoke.sh"
    step, made = smoke_step(target, script=script)
    files, step = list(made), replace(step, programs=_runtime(target))
    if nodes is not None or devices is not None:
        file, step = suite_job(target, number=1, nodes=nodes, devices=devices)
        files.append(file)
    return _plan(target, purpose="smoke", step=step, files=(*files, *_around(target)), smoke=True)


def run_plan(target: Target, *, nodes: int | None = None, devices: int | None = None, here: bool) -> Plan:
    """A plan of one step, a command of the user's: as a job of that shape, or with `here` on this machine."""
    script = None
    if here:
        ranks = devices is not None
        file = File(path=f"run/{'ranks' if ranks else 'one'}.sh", text=here_script(target, ranks=ranks))
    else:
        purpose, job = shape_of(target, nodes=nodes, devices=devices)
        name = f"{slug(target.recipe.name)}-run"
        script = shape_script(target, job, purpose=purpose, name=name, script="1-run.sbatch")
        file = script.file
    programs = _runtime(target) if here else ()
    step = Step(name="run", kind="run", why="run the command that is given", script=file.path, programs=programs)
    step = with_job(step, script)
    around = tuple(other for other in _around(target) if other.path != file.path)
    return _plan(target, purpose="run", step=step, files=(file, *around), smoke=True)


def _runtime(target: Target) -> tuple[str, ...]:
    """What must be on PATH to run an image; modules bring it, and wrappers of Tykky find it themselves."""
    runtime = target.site.runtime
    return (
        ()
        if target.backend == "tykky" or runtime.modules or runtime.run_modules
        else ("|".join(runtime_command(target)),)
    )


def convert_plan(target: Target, *, archive: str, archive_gib: float) -> Plan:
    """A plan that makes a SIF of a docker-archive; `archive` is its absolute path."""
    image = f"{slug(target.recipe.name)}.sif"
    script, batch = "1-convert.sh", "1-convert.sbatch"
    name = f"{slug(target.recipe.name)}-convert"
    text = convert_script(target, archive=archive, image=image, modules=False)
    files = [
        File(path=script, text=text, executable=True),
        File(path="engine.sh", text=verbatim("engine.sh")),
        *job_files(target),
    ]
    job = convert_job(target, archive=archive, image=image, name=name, script=batch)
    files += files_of(job)
    step = Step(
        name="convert",
        kind="convert",
        why=f"convert {PurePosixPath(archive).name} to {image}",
        script=script,
        produces=(image,),
        programs=("|".join(runtime_command(target)),),
        space_gib=archive_gib * UNPACKED,
    )
    return _plan(target, purpose="convert", step=with_job(step, job), files=tuple(files), image=image, base=archive)


def _around(target: Target) -> tuple[File, ...]:
    return (File(path="engine.sh", text=verbatim("engine.sh")), *run_files(target), *job_files(target))


def _plan(
    target: Target,
    *,
    purpose: str,
    step: Step,
    files: tuple[File, ...],
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
        image_kind="folder" if target.backend == "tykky" else "sif",
        base=base,
        steps=(step,),
        files=files,
        copies=smoke_copies() if smoke else (),
        expect=expected(target) if smoke else {},
        tool=target.context.tool,
        tmpdir=target.site.build.tmpdir,
    )
