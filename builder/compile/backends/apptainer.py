"""Apptainer and SingularityCE: a definition file (Dawn, Frontier, this machine)."""

from __future__ import annotations

from builder.compile.backend_plan import Build, size_gib
from builder.compile.image_files import FOLDER, base_check, base_reference, image_copies, image_files, image_name
from builder.compile.render import render, verbatim
from builder.compile.scripts import (
    build_job,
    call,
    files_of,
    login_lines,
    proxy_lines,
    runtime_command,
    step_script,
    with_job,
)
from builder.model.finding import Finding, Place
from builder.model.plan import Copy, Expanding, File, Step
from builder.model.target import Target

SETTLING = Copy(source="layering", path="layering", bundled=True)  # the program that makes it the same bytes
# The conda client of the build, 2.3.2; it does not stay in the image. https://hub.docker.com/r/mambaorg/micromamba
# The digest of its image for linux/amd64 as two projects hold it, read 2026-11-23: the conda solver of a CaImAn image
# ("mambaorg/micromamba:2.3.2@sha256:9558...") and SPICE of the Diaz lab ("the Linux/amd64 ... manifest digest"). That
# for arm64 is unknown here: RECIPE_MICROMAMBA has to name an image there, and may anywhere.
MICROMAMBA = {
    "x86_64": "docker.io/mambaorg/micromamba@sha256:955819619f303e2aa1dc1ba89beefe7f326a378b3d0782a4a0d28b1cf11b68b6",
}


def findings(target: Target) -> tuple[Finding, ...]:
    """A definition file can do all that a recipe can ask for."""
    return client_findings(target)


def client_findings(target: Target) -> tuple[Finding, ...]:
    """No program is taken from an image that is not named by its digest."""
    arch = target.site.node.arch
    if target.environment.place != "conda" or target.context.micromamba or arch in MICROMAMBA:
        return ()
    message = f"the digest of the image with conda's client is unknown for {arch}"
    fix = "look for one, and set RECIPE_MICROMAMBA=docker://docker.io/mambaorg/micromamba@sha256:DIGEST"
    return (Finding(code="client-digest", message=message, at=Place(file=target.recipe.file), fix=fix),)


def plan(target: Target) -> Build:
    """A definition file, the script that builds it and the job that runs the script."""
    name = image_name(target)
    image = f"{name}.sif"
    number = 1
    script = f"{number}-build-image.sh"
    files = [
        File(path="engine.sh", text=verbatim("engine.sh")),
        File(path=f"{name}.def", text=definition(target)),
        File(path=script, text=build_script(target, image=image), executable=True),
        *image_files(target),
    ]
    job = build_job(target, script=script, name=name, title=f"Builds {image}")
    step = Step(
        name="build-image",
        kind="build",
        why=f"build {image} from {target.base.reference}",
        script=script,
        produces=(image,),
        programs=("|".join(runtime_command(target)),),
        space_gib=size_gib(target) * 2,
    )
    copies = (*image_copies(target), SETTLING)
    return Build(
        image=image, image_kind="sif", files=(*files, *files_of(job)), steps=(with_job(step, job),), copies=copies
    )


def compression(target: Target) -> str:
    """zstd where the site's runtime is known to mount it, else what the engine takes."""
    return "zstd" if target.site.runtime.zstd == "yes" else "default"


def bootstrap(reference: str) -> tuple[str, str]:
    """Agent and location of a base image, as a definition file names them."""
    for prefix, agent in (("docker://", "docker"), ("oras://", "oras"), ("library://", "library")):
        if reference.startswith(prefix):
            return agent, reference.removeprefix(prefix)
    if reference.endswith((".tar", ".tar.gz")):
        return "docker-archive", reference
    return "localimage", reference


def micromamba(target: Target) -> str:
    """The image that conda's client is taken from, "" where no conda environment is made."""
    ours = MICROMAMBA.get(target.site.node.arch, "")
    return (target.context.micromamba or ours) if target.environment.place == "conda" else ""


def definition(target: Target) -> str:
    """The definition file; nothing in it but the base image's name comes from a recipe or a site."""
    agent, location = bootstrap(base_reference(target))
    return render(
        "image.def.j2",
        agent=agent,
        location=location,
        micromamba=micromamba(target),
        folder=FOLDER,
        tool=target.context.tool,
    )


def build_script(target: Target, *, image: str) -> str:
    """The script of the build step."""
    build = target.site.build
    definition_file = f"{image_name(target)}.def"
    lines = [
        call("pick_runtime", *runtime_command(target)),
        *proxy_lines(target),
        *login_lines(target),
        "clear_binds",
        call("temporary_folder", Expanding(build.tmpdir), Expanding(build.cachedir)),
        *base_check(target),
        call("one_time", base_reference(target)),
        call("packing", compression(target)),
        call("dated", definition_file),
        "inside_build",
        "offer_wheels",
        f'"$runtime" build --force "${{pack_options[@]}}" "${{build_binds[@]}}" {image}.part "$definition"',
        call("settle", f"{image}.part"),
        call("put_in_place", f"{image}.part", image),
    ]
    title = f"Builds {image} with {target.site.runtime.command}."
    modules = (*target.site.runtime.modules, *build.modules, *build.backend_modules.get("apptainer", ()))
    return step_script(target, title=title, modules=modules, lines=lines)
