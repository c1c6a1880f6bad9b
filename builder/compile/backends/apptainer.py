"""Apptainer and SingularityCE: a definition file (Dawn, Frontier, this machine)."""

from __future__ import annotations

from builder.compile.audit_file import make_audit_lines
from builder.compile.backend_plan import BackendPlan, estimate_size_gib
from builder.compile.image_files import (
    IMAGE_FOLDER,
    list_image_copies,
    make_base_check,
    make_image_files,
    name_image,
    pin_base_reference,
)
from builder.compile.render import read_template, render
from builder.compile.step_scripts import (
    attach_job,
    list_job_files,
    list_runtime_commands,
    make_build_job,
    make_call,
    make_login_lines,
    make_proxy_lines,
    make_step_script,
)
from builder.model.finding import Finding, Location
from builder.model.plan import Copy, PlanFile, ShellExpr, Step
from builder.model.target import Target

NORMALISER = Copy(source="layering", path="layering", bundled=True)  # the program that normalizes the image
# The conda client of the build, 2.3.2; it does not stay in the image. https://hub.docker.com/r/mambaorg/micromamba
# The digest of its image for linux/amd64, as two projects pin it, read 2026-11-23: the conda solver of a CaImAn image
# ("mambaorg/micromamba:2.3.2@sha256:9558...") and SPICE of the Diaz lab ("the Linux/amd64 ... manifest digest"). That
# for arm64 is unknown: there RECIPE_MICROMAMBA must name an image; elsewhere it may.
MICROMAMBA = {
    "x86_64": "docker.io/mambaorg/micromamba@sha256:955819619f303e2aa1dc1ba89beefe7f326a378b3d0782a4a0d28b1cf11b68b6",
}


def check(target: Target) -> tuple[Finding, ...]:
    """Check the conda client; a definition file supports everything else."""
    return check_conda_client(target)


def check_conda_client(target: Target) -> tuple[Finding, ...]:
    """Refuse a conda client whose image has no known digest."""
    arch = target.site.node.arch
    if target.environment.place != "conda" or target.context.micromamba or arch in MICROMAMBA:
        return ()
    message = f"the digest of the image with conda's client is unknown for {arch}"
    fix = "look for one, and set RECIPE_MICROMAMBA=docker://docker.io/mambaorg/micromamba@sha256:DIGEST"
    return (Finding(code="client-digest", message=message, at=Location(file=target.recipe.file), fix=fix),)


def plan(target: Target) -> BackendPlan:
    """Make a definition file, the script that builds it and the job that runs the script."""
    name = name_image(target)
    image = f"{name}.sif"
    script = "1-build-image.sh"
    files = [
        PlanFile(path="engine.sh", text=read_template("engine.sh")),
        PlanFile(path=f"{name}.def", text=make_definition(target)),
        PlanFile(path=script, text=make_build_script(target, image=image), executable=True),
        *make_image_files(target),
    ]
    job = make_build_job(target, script=script, name=name, title=f"Builds {image}")
    step = Step(
        name="build-image",
        kind="build",
        why=f"build {image} from {target.base.reference}",
        script=script,
        produces=(image,),
        programs=("|".join(list_runtime_commands(target)),),
        space_gib=estimate_size_gib(target) * 2,
    )
    copies = (*list_image_copies(target), NORMALISER)
    return BackendPlan(
        image=image,
        image_kind="sif",
        files=(*files, *list_job_files(job)),
        steps=(attach_job(step, job),),
        copies=copies,
    )


def choose_compression(target: Target) -> str:
    """Choose zstd if the site's runtime is known to mount it, else the engine's default."""
    return "zstd" if target.site.runtime.zstd == "yes" else "default"


def split_reference(reference: str) -> tuple[str, str]:
    """Split a reference into agent and location, as a definition file names them."""
    for prefix, agent in (("docker://", "docker"), ("oras://", "oras"), ("library://", "library")):
        if reference.startswith(prefix):
            return agent, reference.removeprefix(prefix)
    if reference.endswith((".tar", ".tar.gz")):
        return "docker-archive", reference
    return "localimage", reference


def choose_micromamba(target: Target) -> str:
    """Choose the image with conda's client; "" without a conda environment."""
    ours = MICROMAMBA.get(target.site.node.arch, "")
    return (target.context.micromamba or ours) if target.environment.place == "conda" else ""


def make_definition(target: Target) -> str:
    """Make the definition file; it contains no text of a recipe or site except the base image's name."""
    agent, location = split_reference(pin_base_reference(target))
    return render(
        "image.def.j2",
        agent=agent,
        location=location,
        micromamba=choose_micromamba(target),
        folder=IMAGE_FOLDER,
        tool=target.context.tool,
    )


def make_build_script(target: Target, *, image: str) -> str:
    build = target.site.build
    definition_file = f"{name_image(target)}.def"
    lines = [
        make_call("pick_runtime", *list_runtime_commands(target)),
        *make_proxy_lines(target),
        *make_login_lines(target),
        "clear_binds",
        make_call("temporary_folder", ShellExpr(build.tmpdir), ShellExpr(build.cachedir)),
        *make_base_check(target),
        make_call("one_time", pin_base_reference(target)),
        make_call("packing", choose_compression(target)),
        make_call("dated", definition_file),
        "inside_build",
        "offer_wheels",
        f'"$runtime" build --force "${{pack_options[@]}}" "${{build_binds[@]}}" {image}.part "$definition"',
        make_call("settle", f"{image}.part"),
        *make_audit_lines(target, f"{image}.part"),
        make_call("put_in_place", f"{image}.part", image),
    ]
    title = f"Builds {image} with {target.site.runtime.command}."
    modules = (*target.site.runtime.modules, *build.modules, *build.backend_modules.get("apptainer", ()))
    return make_step_script(target, title=title, modules=modules, lines=lines)
