"""Apptainer and SingularityCE: a definition file (Dawn, Frontier, this machine; LUMI in PRoot)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from builder.compile.backend_plan import (
    BackendPlan,
    list_other_backends,
    make_audit_lines,
    plan_one_step,
)
from builder.compile.image_files import (
    IMAGE_FOLDER,
    list_image_copies,
    make_base_check,
    make_image_files,
    name_image,
    pin_base_reference,
)
from builder.compile.render import render
from builder.compile.step_scripts import (
    list_runtime_commands,
    make_call,
    make_login_lines,
    make_processor_lines,
    make_proxy_lines,
    make_step_script,
)
from builder.model.finding import Finding, Location
from builder.model.plan import Copy, PlanFile, ShellExpr
from builder.model.target import Target

NORMALISER = Copy(source="layering", path="layering", bundled=True)  # the program that normalizes the image
# The conda client of the build, 2.3.2; it does not stay in the image. https://hub.docker.com/r/mambaorg/micromamba
# The digest of its image for linux/amd64, as two projects pin it, read 2026-11-23: the conda solver of a CaImAn image
# ("mambaorg/micromamba:2.3.2@sha256:9558...") and SPICE of the Diaz lab ("the Linux/amd64 ... manifest digest"). That
# for arm64 is unknown: there RECIPE_MICROMAMBA must name an image; elsewhere it may.
MICROMAMBA = {
    "x86_64": "docker.io/mambaorg/micromamba@sha256:955819619f303e2aa1dc1ba89beefe7f326a378b3d0782a4a0d28b1cf11b68b6",
}


# What needs rights that PRoot pretends to have. "May fail if the %post script requires privileged operations that proot
# cannot emulate": SingularityCE 3.11, CHANGELOG; https://docs.sylabs.io/guides/4.1/user-guide/build_a_container.html
PRIVILEGED = ("losetup", "mknod", "modprobe", "mount", "setcap", "sysctl", "umount")
_PRIVILEGED = re.compile(rf"(?:^|[\s;&|(/])({'|'.join(PRIVILEGED)})(?=\s|$)")


def check(target: Target) -> tuple[Finding, ...]:
    """Check the conda client, and what a build without privileges cannot do; a definition file supports all else."""
    return (*check_conda_client(target), *_check_privileges(target))


def _check_privileges(target: Target) -> Iterator[Finding]:
    """Report a site where no user can build a definition file, and what PRoot cannot do of a recipe."""
    site, recipe = target.site, target.recipe
    build = site.build
    if build.proot == "no" and build.user_namespaces == "no" and build.fakeroot == "no":
        message = f"a definition file cannot be built on '{site.name}': no user namespaces, no fakeroot, no PRoot"
        ways = list_other_backends(target, "docker", "layers", "cotainr", "tykky")
        fix = f"build with {ways}" if ways else "correct the site's file, or build on another machine"
        yield Finding(code="apptainer-rootless", message=message, at=Location(key="build.proot"), fix=fix)
    if not build.needs_proot:
        return
    for number, command in enumerate(recipe.container.run):
        found = _PRIVILEGED.search(command)
        if found:
            key = f"container.run[{number}]"
            line = recipe.lines.get(key) or recipe.lines.get("container.run")
            message = (
                f"'{found[1]}' needs rights that a build in PRoot does not have, and '{site.name}' builds in PRoot"
            )
            at, fix = Location(file=recipe.file, line=line, key=key), "remove it, or build on another machine"
            yield Finding(code="apptainer-proot", message=message, at=at, fix=fix, level="warning")
    if recipe.container.system:
        at = Location(file=recipe.file, line=recipe.lines.get("container.system"), key="container.system")
        message = f"'{site.name}' installs container.system in PRoot, where packages with users of their own may fail"
        fix = "no action needed; if the build fails in a package's script, take that program from conda-forge"
        yield Finding(code="apptainer-users", message=message, at=at, fix=fix, level="note")


def check_conda_client(target: Target) -> tuple[Finding, ...]:
    """Refuse a conda client whose image has no known digest."""
    arch = target.site.node.arch
    if target.environment.place != "conda" or target.context.micromamba or arch in MICROMAMBA:
        return ()
    message = f"the digest of the image with conda's client is unknown for {arch}"
    fix = "set RECIPE_MICROMAMBA=docker://docker.io/mambaorg/micromamba@sha256:DIGEST with the one of the registry"
    if "layers" in target.site.build.backends:
        fix = f"build with --backend layers, which needs no such image, or {fix}"
    return (Finding(code="client-digest", message=message, at=Location(file=target.recipe.file), fix=fix),)


def plan(target: Target) -> BackendPlan:
    """Make a definition file, the script that builds it and the job that runs the script."""
    name = name_image(target)
    image = f"{name}.sif"
    return plan_one_step(
        target,
        image=image,
        definition=PlanFile(path=f"{name}.def", text=make_definition(target)),
        script=make_build_script(target, image=image),
        more=make_image_files(target),
        why=f"build {image} from {target.base.reference}",
        programs=("|".join(list_runtime_commands(target)),),
        copies=(*list_image_copies(target), NORMALISER),
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
        *make_processor_lines(target),
        *(["need_proot"] if build.needs_proot else []),
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
