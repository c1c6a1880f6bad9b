"""Docker: a Dockerfile, saved and converted to a SIF (MareNostrum 5, CI). The site itself needs no network."""

from __future__ import annotations

import hashlib
import json
import re

from builder.compile import shell
from builder.compile.backend_plan import BackendPlan, make_audit_lines
from builder.compile.backends.apptainer import NORMALISER, check_conda_client, choose_compression, choose_micromamba
from builder.compile.image_files import (
    IMAGE_FOLDER,
    collect_variables,
    list_image_copies,
    make_image_files,
    make_labels,
    name_image,
    pin_base_reference,
)
from builder.compile.render import read_template, render
from builder.compile.step_scripts import (
    JobScript,
    attach_job,
    estimate_size_gib,
    list_job_files,
    list_runtime_commands,
    make_batch_script,
    make_call,
    make_step_script,
)
from builder.model.finding import Finding, Location
from builder.model.plan import PlanFile, ShellExpr, Step
from builder.model.target import Target

PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}  # Docker's names of processors
DOCKER_RUN = ("docker", "run", "--rm", "--network=none", "--entrypoint=python3")  # the image's own may be any program
PACKAGE_FILES = (
    "requirements.txt", "constraints.txt", "requirements-commits.txt", "compiled.txt", "tools.txt", "pip.txt",
)  # fmt: skip
# Safe values of ENV: Apptainer up to 1.4 evaluates others as shell (seen with 1.4.5: "$(...)" and "`").
SAFE_ENV = re.compile(r"[A-Za-z0-9_./:,@%+= -]*")


def check(target: Target) -> tuple[Finding, ...]:
    """Report base images that are not in a registry, and variables that `docker run` does not set."""
    found = [*check_conda_client(target)]
    reference = target.base.reference
    if not reference.startswith("docker://"):
        at = Location(file=target.recipe.file, line=target.recipe.lines.get("container.base"), key="container.base")
        message = f"the docker backend cannot start from '{reference}'"
        found.append(Finding(code="docker-base", message=message, at=at, fix="name an image as docker://NAME:TAG"))
    for name, value in collect_variables(target).items():
        if not SAFE_ENV.fullmatch(value):
            line = target.recipe.lines.get(f"container.env.{name}") or target.recipe.lines.get(f"variables.{name}")
            message = f"the variable '{name}' is set under Apptainer and Singularity, not under docker run"
            fix = "no action needed if you run the SIF; otherwise use only letters, digits and _./:,@%+=-"
            at = Location(file=target.recipe.file, line=line)
            found.append(Finding(code="docker-env", message=message, at=at, fix=fix, level="note"))
    return tuple(found)


def plan(target: Target) -> BackendPlan:
    """Make the Dockerfile and .dockerignore; one step builds and saves, another converts (here or as a job)."""
    name = name_image(target)
    image, archive = f"{name}.sif", f"{name}.tar"
    files = [
        PlanFile(path="engine.sh", text=read_template("engine.sh")),
        PlanFile(path="Dockerfile", text=make_dockerfile(target)),
        PlanFile(path=".dockerignore", text=f"*\n!{IMAGE_FOLDER}\n!inputs.recipe\n"),
        PlanFile(path="1-build-image.sh", text=make_build_script(target, archive=archive), executable=True),
        PlanFile(
            path="2-convert.sh",
            text=make_convert_script(target, archive=archive, image=image),
            executable=True,
        ),
        *make_image_files(target),
    ]
    as_job = make_convert_job(target, archive=archive, image=image, name=f"{name}-convert", script="2-convert.sbatch")
    files += list_job_files(as_job)
    convert = Step(
        name="convert",
        kind="convert",
        why=f"convert {archive} to {image}",
        script="2-convert.sh",
        produces=(image,),
        programs=("|".join(list_runtime_commands(target)),),
        space_gib=estimate_size_gib(target) * 2,
    )
    steps = (_make_build_step(target, archive=archive), attach_job(convert, as_job))
    copies = (*list_image_copies(target), NORMALISER)
    return BackendPlan(image=image, image_kind="sif", files=tuple(files), steps=steps, copies=copies)


def _make_build_step(target: Target, *, archive: str) -> Step:
    return Step(
        name="build-image",
        kind="build",
        why=f"build and save {make_tag(target)} from {target.base.reference}",
        script="1-build-image.sh",
        produces=(archive,),
        programs=("docker",),
        space_gib=estimate_size_gib(target),
        where="workstation",
    )


def make_tag(target: Target) -> str:
    """Make name and tag of the Docker image; an image saved by its id would have no name."""
    return f"recipe/{name_image(target)}:{target.recipe.digest[:12]}"


def make_dockerfile(target: Target) -> str:
    """Make the Dockerfile: each layer copies only the files it reads; those that change often come last."""
    texts = {file.path.removeprefix(f"{IMAGE_FOLDER}/"): file.text for file in make_image_files(target)}
    always = ("install.sh", "protect.py", "place", "lock", "protected.txt", "python-version", "cuda-version")
    parts = [
        ("system", ("system.txt",)),
        ("python", tuple(name for name in ("environment.yml", "conda-explicit.txt") if name in texts)),
        ("torch", ("requirements-torch.txt",)),
        ("packages", tuple(name for name in PACKAGE_FILES if name in texts)),
        ("own", ("requirements-own.txt",)),
        ("files", ()),
        ("run", ("run.sh",)),
        ("finish", ("env.sh", "recipe.json", "times.py", "verify.py")),
    ]
    folders = {"own": ("local", target.environment.own), "files": ("root", target.recipe.container.files)}
    trees = {part: [name] for part, (name, wanted) in folders.items() if wanted}
    layers = [
        (part, files)
        for part, files in parts
        if part in ("python", "finish") or part in trees or any(name in texts for name in files)
    ]
    if target.environment.place == "base" and not any(part == "packages" for part, _ in layers):
        layers.insert(-1, ("packages", ()))
    # A cache that code of a part can write is named by a hash of all inputs of that code: recipes share none.
    decided, caches = [pin_base_reference(target), *(texts[name] for name in always if name in texts)], {}
    for part, files in layers:
        decided += [part, *(texts.get(name, "") for name in files)]
        caches[part] = hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:32]
    return render(
        "Dockerfile.j2",
        caches=caches,
        tools=any(name.startswith("requirements") for name in texts),
        base=pin_base_reference(target).removeprefix("docker://"),
        micromamba=choose_micromamba(target),
        folder=IMAGE_FOLDER,
        always=[name for name in always if name in texts],
        layers=layers,
        trees={part: trees.get(part, []) for part, _ in layers},
        own_prefix=target.environment.place != "base",
        variables={name: value for name, value in collect_variables(target).items() if SAFE_ENV.fullmatch(value)},
    )


def make_build_script(target: Target, *, archive: str) -> str:
    """Make the script: build with BuildKit and save; indexes, certificates and wheels are mounted, never copied."""
    label_words = [
        word for name, value in sorted(make_labels(target).items()) for word in ("--label", f"{name}={value}")
    ]
    platform = f"--platform={PLATFORMS[target.site.node.arch]}"  # the machine that builds may have another
    build = shell.quote_command(["docker", "build", platform, "--tag", make_tag(target), *label_words])
    build += ' ${RECIPE_FRESH:+--no-cache} \\\n  --secret "id=settings,src=$settings" --secret "id=plain,src=$plain" .'
    lines = [
        "export DOCKER_BUILDKIT=1 BUILDKIT_PROGRESS=plain",
        'temporary_folder "" ""',
        "# The build context is what Docker can see: local wheel folders are linked into it during the build.",
        "rm -rf inputs.recipe",
        "inputs=$PWD/inputs.recipe",
        "copy_inputs=yes",
        "package_settings",
        build,
        make_call("docker_answer", make_tag(target)),
        "# As a container of Docker, with the image's own variables, before anything is saved or copied.",
        f"{make_call(*DOCKER_RUN, platform, make_tag(target), '/opt/recipe/verify.py', '/opt/recipe/recipe.json')} ||",
        '    fail "the image does not hold what was planned when docker run starts it"',
        make_call("docker", "save", make_tag(target), "--output", f"{archive}.part"),
        make_call("put_in_place", f"{archive}.part", archive),
    ]
    title = f"Builds the Docker image {make_tag(target)}, checks it and saves it as {archive}."
    return make_step_script(target, title=title, modules=(), lines=lines)


def make_convert_lines(target: Target, *, archive: str, image: str, modules: bool) -> list[str]:
    """Make the lines of the conversion, for this machine or for a job."""
    build = target.site.build
    first = target.site.runtime.command if modules else "apptainer"
    second = "singularity" if first == "apptainer" else "apptainer"
    lines = [". ./engine.sh"] if modules else []
    if modules:
        lines += [make_call("use_module", *module.split()) for module in target.site.runtime.modules] + ["set -u"]
    lines += [
        make_call("pick_runtime", first, second),
        "clear_binds",
        make_call("temporary_folder", ShellExpr(build.tmpdir), ShellExpr(build.cachedir)),
        make_call("one_time", archive),
        make_call("packing", choose_compression(target), archive),
        f'"$runtime" build --force "${{pack_options[@]}}" {image}.part {shell.quote_word(f"docker-archive://{archive}")}',
        make_call("settle", f"{image}.part"),
        *make_audit_lines(target, f"{image}.part"),
        make_call("put_in_place", f"{image}.part", image),
    ]
    return lines


def make_convert_job(target: Target, *, archive: str, image: str, name: str, script: str) -> JobScript | None:
    """Make the conversion job from the site's convert or build job; None if it has neither."""
    job = target.site.scheduler.jobs.get("convert") or target.site.scheduler.jobs.get("build")
    if job is None:
        return None
    return make_batch_script(
        target,
        job,
        name=name,
        title=f"Converts {archive} to {image} on a compute node.",
        lines=make_convert_lines(target, archive=archive, image=image, modules=True),
        purpose="convert",
        script=script,
    )


def make_convert_script(target: Target, *, archive: str, image: str) -> str:
    """Make the script of the conversion on the machine that built the archive."""
    lines = make_convert_lines(target, archive=archive, image=image, modules=False)
    return make_step_script(target, title=f"Converts {archive} to {image}.", modules=(), lines=lines)
