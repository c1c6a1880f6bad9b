"""compile_plan: a target becomes a plan. Pure: the same target gives the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from builder.compile.backends import BACKENDS
from builder.compile.build import Build
from builder.compile.content import expected
from builder.compile.launch import run_files
from builder.compile.render import render, verbatim
from builder.compile.smoke import smoke_copies, smoke_files, smoke_step, workloads
from builder.model.finding import UnsupportedError, errors
from builder.model.plan import File, Plan
from builder.model.recipe import Container, Recipe, Smoke, Workload
from builder.model.site import Site
from builder.model.target import Context, Environment, Target, Torch


def compile_plan(target: Target) -> Plan:
    """Write every file and step of a target; raises UnsupportedError when its backend cannot serve it."""
    backend = BACKENDS[target.backend]
    findings = (*target.findings, *backend.findings(target))
    if errors(findings):
        raise UnsupportedError(*findings)
    build = backend.plan(target)
    script = f"{len(build.steps) + 1}-smoke.sh"
    steps = (*build.steps, smoke_step(target, script=script))
    plan = Plan(
        target=target.name,
        recipe=target.recipe.name,
        site=target.site.name,
        backend=target.backend,
        vendor=target.site.vendor,
        image=build.image,
        image_kind=build.image_kind,
        base=target.base.reference,
        steps=steps,
        files=(*build.files, *smoke_files(target, script=script), *run_files(target)),
        copies=(*build.copies, *smoke_copies()),
        packages=target.packages,
        findings=findings,
        expect=expected(target),
        tool=target.context.tool,
        tmpdir=target.site.build.tmpdir,
    )
    return replace(plan, files=(File(path="README.md", text=readme(target, plan=plan, build=build)), *plan.files))


def smoke_plan(site: Site, *, image: str, tool: str, folder_image: bool, workloads: tuple[Workload, ...]) -> Plan:
    """A plan that only tests an image which exists: `image` is its absolute path, a folder under tykky."""
    smoke = Smoke(workloads=workloads)
    name = PurePosixPath(image).stem
    recipe = Recipe(name=name, file=image, digest="", folder="", kind="pip", container=Container(smoke=smoke))
    target = Target(
        recipe=recipe,
        site=site,
        backend="tykky" if folder_image else "apptainer",
        base=site.base_images[0],
        environment=Environment(place="venv", torch=Torch(version="")),
        context=Context(tool=tool),
    )
    script = "1-smoke.sh"
    files = (
        *smoke_files(target, script=script),
        File(path="engine.sh", text=verbatim("engine.sh")),
        *run_files(target),
    )
    return Plan(
        target=f"{name}.{site.name}.smoke",
        recipe=name,
        site=site.name,
        backend=target.backend,
        vendor=site.vendor,
        image=image,
        image_kind="folder" if folder_image else "sif",
        base="",
        steps=(smoke_step(target, script=script),),
        files=files,
        copies=smoke_copies(),
        expect=expected(target),
        tool=tool,
    )


def readme(target: Target, *, plan: Plan, build: Build) -> str:
    """A page for whoever finds the folder."""
    purposes = [name for name in ("gpu", "node", "nodes") if name in target.site.scheduler.jobs]
    account = target.site.scheduler.account_form if target.site.scheduler.account != "none" else ""
    return render(
        "README.md.j2",
        plan=plan,
        build=build,
        target=target,
        purposes=purposes,
        workloads=workloads(target),
        sbatch=" ".join(
            [
                "sbatch",
                *target.site.scheduler.submit,
                *([f"--account='{account}'"] if account and not target.context.account else []),
            ]
        ),
        files=[file.path for file in plan.files],
    )
