"""SIF layers: the base image unchanged, and squashfs layers that are merged with it or mounted over it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from builder.compile.backend_plan import (
    BackendPlan,
    list_other_backends,
    plan_one_step,
)
from builder.compile.image_files import (
    IMAGE_FOLDER,
    list_image_copies,
    make_base_check,
    make_expectations,
    make_image_files,
    name_image,
    pin_base_reference,
)
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
from builder.model.site import SUBDIRS
from builder.model.target import Target

# Only a conda client inside an image needs them; here layers.json describes the environment.
CONDA_FILES = tuple(
    f"{IMAGE_FOLDER}/{name}" for name in ("environment.yml", "conda-explicit.txt", "conda-local.txt", "cuda-version")
)


def check(target: Target) -> tuple[Finding, ...]:
    """Report a site whose runtime cannot mount layers, or is untested with them.

    This matters only for a base image that is a local file, which may be packed differently. One from a registry is
    packed like the layers, and the image is a single file system.
    """
    found: list[Finding] = [*_check_fakeroot(target)]
    site = target.site
    ways = list_other_backends(target, "apptainer", "docker", "cotainr", "tykky")
    instead = f"use {ways}" if ways else "use a base image of a registry"
    if "://" in target.base.reference and site.runtime.zstd != "yes":
        return tuple(found)
    if site.runtime.layers == "no":
        message = f"{site.runtime.command} on '{site.name}' does not mount layers"
        found.append(Finding(code="layers-runtime", message=message, at=Location(key="runtime.layers"), fix=instead))
    elif site.runtime.layers == "unknown":
        message = f"layered images are untested with {site.runtime.command} on '{site.name}'"
        fix = "if the smoke test does not find the packages, " + instead
        at = Location(key="runtime.layers")
        found.append(Finding(code="layers-unproven", message=message, at=at, fix=fix, level="warning"))
    return tuple(found)


def _check_fakeroot(target: Target) -> Iterator[Finding]:
    """Report steps that run as root in a container, on a site whose runtime has no fakeroot for users."""
    recipe, site = target.recipe, target.site
    if site.build.fakeroot != "no":
        return
    for key in ("system", "run"):
        if getattr(recipe.container, key):
            at = Location(file=recipe.file, line=recipe.lines.get(f"container.{key}"), key=f"container.{key}")
            message = f"container.{key} runs as root in the image, and '{site.name}' has no fakeroot for users"
            fix = "build such an image on another machine, name it in container.base, and remove this"
            yield Finding(code="layers-fakeroot", message=message, at=at, fix=fix)
    if target.environment.compiled:
        names = ", ".join(target.environment.compiled)
        message = f"{names} would be compiled as root in the image, and '{site.name}' has no fakeroot for users"
        ways = list_other_backends(target, "apptainer", "docker")
        fix = f"remove them for '{site.name}', and name an image of another machine that has them and torch in "
        fix += "container.base if you need them; or give the addresses of wheels"
        fix = f"build with {ways}" if ways else fix
        yield Finding(code="layers-fakeroot", message=message, at=Location(file=recipe.file), fix=fix)


def plan(target: Target) -> BackendPlan:
    """Make the description of the layers and the script that calls the program which builds them."""
    image = f"{name_image(target)}.sif"
    return plan_one_step(
        target,
        image=image,
        definition=PlanFile(path="layers.json", text=make_layers_json(target, image=image)),
        script=make_build_script(target, image=image),
        more=(file for file in make_image_files(target) if file.path not in CONDA_FILES),
        why=f"build {image} from {target.base.reference} and layers",
        programs=("|".join(list_runtime_commands(target)), "mksquashfs", "unsquashfs"),
        copies=(*list_image_copies(target), Copy(source="layering", path="layering", bundled=True)),
        sizes=1,
    )


def make_layers_json(target: Target, *, image: str) -> str:
    """Make `layers.json`, the input of the stand-alone program besides the files of `image/`."""
    environment = target.environment
    document = {
        "image": image,
        "base": pin_base_reference(target),
        "place": environment.place,
        "machine": target.site.node.arch,
        "zstd": target.site.runtime.zstd == "yes",
        "python": environment.python or "" if environment.place == "venv" and target.base.python is None else "",
        "conda": describe_conda(target) if environment.place == "conda" else {},
        "expect": make_expectations(target),
        "tool": target.context.tool,
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def describe_conda(target: Target) -> dict[str, object]:
    """Describe a conda environment: the exact packages of a lock, else the request to the solver."""
    environment, lock = target.environment, target.lock
    names = ("name", "version", "build", "subdir", "url", "sha256", "md5", "size", "depends")
    return {
        "channels": list(environment.channels),
        "specs": list(environment.conda),
        "platform": SUBDIRS[target.site.node.arch],
        "cuda": environment.cuda,
        "packages": [{name: getattr(package, name) for name in names} for package in lock.conda] if lock else [],
    }


def _is_laid_out(target: Target) -> bool:
    """Whether conda packages are laid out here, and no program of the image runs: any machine can do that."""
    container, environment = target.recipe.container, target.environment
    pip = (*environment.torch_lines, *environment.pip_lines, *environment.own)
    return environment.place == "conda" and not (pip or container.system or container.run)


def make_build_script(target: Target, *, image: str) -> str:
    build = target.site.build
    lines = [
        make_call("pick_runtime", *list_runtime_commands(target)),
        "pick_python",
        *([] if _is_laid_out(target) else make_processor_lines(target)),
        *make_proxy_lines(target),
        *make_login_lines(target),
        "clear_binds",
        *make_base_check(target),
        make_call("temporary_folder", ShellExpr(build.tmpdir), ShellExpr(build.cachedir)),
        "inside_build",
        'if [ "${RECIPE_FETCH:-}" = yes ]; then',
        '    "$python" "${layering[@]}" fetch layers.json --runtime "$runtime" --given "$work/given" '
        '-- "${build_binds[@]}"',
        "    exit",
        "fi",
        f'"$python" "${{layering[@]}}" build layers.json --runtime "$runtime" --output {image}.part '
        '--given "$work/given" -- "${build_binds[@]}"',
        make_call("put_in_place", f"{image}.part", image),
    ]
    title = f"Builds {image} from layers: the base image as it is, and what the recipe adds."
    modules = (*target.site.runtime.modules, *build.modules, *build.backend_modules.get("layers", ()))
    return make_step_script(target, title=title, modules=modules, lines=lines)
