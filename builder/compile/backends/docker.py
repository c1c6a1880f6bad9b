"""Docker: a Dockerfile, saved and converted to a SIF (MareNostrum 5, CI). The site itself needs no network."""

from __future__ import annotations

import hashlib
import json
import re

from builder.compile import shell
from builder.compile.backend_plan import Build, size_gib
from builder.compile.backends.apptainer import SETTLING, client_findings, compression, micromamba
from builder.compile.image_files import FOLDER, base_reference, image_copies, image_files, image_name, labels, variables
from builder.compile.render import render, verbatim
from builder.compile.scripts import JobScript, batch_script, call, files_of, runtime_command, step_script, with_job
from builder.model.finding import Finding, Place
from builder.model.plan import Expanding, File, Step
from builder.model.target import Target

PACKAGE_FILES = ("requirements.txt", "constraints.txt", "requirements-commits.txt", "compiled.txt", "tools.txt")
# What a Docker ENV line may hold: Apptainer up to 1.4 sources the others as shell (seen on 1.4.5: "$(...)" and "`").
SAFE_ENV = re.compile(r"[A-Za-z0-9_./:,@%+= -]*")


def findings(target: Target) -> tuple[Finding, ...]:
    """Docker builds from registries only; some variables are set by Apptainer and Singularity alone."""
    found = [*client_findings(target)]
    reference = target.base.reference
    if not reference.startswith("docker://"):
        at = Place(file=target.recipe.file, line=target.recipe.lines.get("container.base"), key="container.base")
        message = f"the docker backend cannot start from '{reference}'"
        found.append(Finding(code="docker-base", message=message, at=at, fix="name an image as docker://NAME:TAG"))
    for name, value in variables(target).items():
        if not SAFE_ENV.fullmatch(value):
            line = target.recipe.lines.get(f"container.env.{name}") or target.recipe.lines.get(f"variables.{name}")
            message = f"the variable '{name}' is set under Apptainer and Singularity, not under docker run"
            fix = "nothing, if you run the SIF; else use letters, digits and _./:,@%+=- only"
            at = Place(file=target.recipe.file, line=line)
            found.append(Finding(code="docker-env", message=message, at=at, fix=fix, level="note"))
    return tuple(found)


def plan(target: Target) -> Build:
    """Dockerfile and .dockerignore; build and save are one step, the conversion another (here, or as a job there)."""
    name = image_name(target)
    image, archive = f"{name}.sif", f"{name}.tar"
    files = [
        File(path="engine.sh", text=verbatim("engine.sh")),
        File(path="Dockerfile", text=dockerfile(target)),
        File(path=".dockerignore", text=f"*\n!{FOLDER}\n!inputs.recipe\n"),
        File(path="1-build-image.sh", text=build_script(target, archive=archive), executable=True),
        File(
            path="2-convert.sh",
            text=convert_script(target, archive=archive, image=image, modules=False),
            executable=True,
        ),
        *image_files(target),
    ]
    as_job = convert_job(target, archive=archive, image=image, name=f"{name}-convert", script="2-convert.sbatch")
    files += files_of(as_job)
    build = Step(
        name="build-image",
        kind="build",
        why=f"build and save {tag(target)} from {target.base.reference}",
        script="1-build-image.sh",
        produces=(archive,),
        programs=("docker",),
        space_gib=size_gib(target),
        where="workstation",
    )
    convert = Step(
        name="convert",
        kind="convert",
        why=f"convert {archive} to {image}",
        script="2-convert.sh",
        produces=(image,),
        programs=("|".join(runtime_command(target)),),
        space_gib=size_gib(target) * 2,
    )
    copies = (*image_copies(target), SETTLING)
    return Build(
        image=image, image_kind="sif", files=tuple(files), steps=(build, with_job(convert, as_job)), copies=copies
    )


def tag(target: Target) -> str:
    """Name and tag of the Docker image; saved by it, since an image saved by its id has lost its name."""
    return f"recipe/{image_name(target)}:{target.recipe.digest[:12]}"


def dockerfile(target: Target) -> str:
    """The Dockerfile: each layer copies only what it reads, those that change often come last."""
    names = {file.path.removeprefix(f"{FOLDER}/") for file in image_files(target)}
    always = ("install.sh", "protect.py", "place", "lock", "protected.txt", "python-version", "cuda-version")
    parts = [
        ("system", ("system.txt",)),
        ("python", tuple(name for name in ("environment.yml", "conda-explicit.txt") if name in names)),
        ("torch", ("requirements-torch.txt",)),
        ("packages", tuple(name for name in PACKAGE_FILES if name in names)),
        ("files", ("root",) if target.recipe.container.files else ()),
        ("run", ("run.sh",)),
        ("finish", ("env.sh", "recipe.json", "times.py", "verify.py")),
    ]
    layers = [
        (part, files)
        for part, files in parts
        if part in ("python", "finish") or (files and _wanted(part, files, names))
    ]
    if target.environment.place == "base" and not any(part == "packages" for part, _ in layers):
        layers.insert(-1, ("packages", ()))
    texts = {file.path.removeprefix(f"{FOLDER}/"): file.text for file in image_files(target)}
    # What code of a part can write is named by all that decides which code it is: another recipe has another one.
    decided, caches = [base_reference(target), *(texts[name] for name in always if name in texts)], {}
    for part, files in layers:
        decided += [part, *(texts.get(name, "") for name in files)]
        caches[part] = hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:32]
    return render(
        "Dockerfile.j2",
        caches=caches,
        tools=any(name.startswith("requirements") for name in names),
        base=base_reference(target).removeprefix("docker://"),
        micromamba=micromamba(target),
        folder=FOLDER,
        always=[name for name in always if name in names],
        layers=layers,
        own_prefix=target.environment.place != "base",
        variables={name: value for name, value in variables(target).items() if SAFE_ENV.fullmatch(value)},
    )


def _wanted(part: str, files: tuple[str, ...], names: set[str]) -> bool:
    return part == "files" or any(name in names for name in files)


def build_script(target: Target, *, archive: str) -> str:
    """Build with BuildKit and save; indexes, certificates and wheel folders are mounted, never copied into a layer."""
    label_words = [word for name, value in sorted(labels(target).items()) for word in ("--label", f"{name}={value}")]
    build = shell.command(["docker", "build", "--tag", tag(target), *label_words])
    build += ' ${RECIPE_FRESH:+--no-cache} \\\n  --secret "id=settings,src=$settings" --secret "id=plain,src=$plain" .'
    lines = [
        "export DOCKER_BUILDKIT=1 BUILDKIT_PROGRESS=plain",
        'temporary_folder "" ""',
        "# The build context is what Docker can see: local wheel folders are linked into it and leave with the build.",
        "rm -rf inputs.recipe",
        "inputs=$PWD/inputs.recipe",
        "copy_inputs=yes",
        "package_settings",
        build,
        call("docker_answer", tag(target)),
        call("docker", "save", tag(target), "--output", f"{archive}.part"),
        call("put_in_place", f"{archive}.part", archive),
    ]
    title = f"Builds the Docker image {tag(target)} and saves it as {archive}."
    return step_script(target, title=title, modules=(), lines=lines)


def convert_lines(target: Target, *, archive: str, image: str, modules: bool) -> list[str]:
    """The conversion, here or in a job."""
    build = target.site.build
    first = target.site.runtime.command if modules else "apptainer"
    second = "singularity" if first == "apptainer" else "apptainer"
    lines = [". ./engine.sh"] if modules else []
    if modules:
        lines += [call("use_module", *module.split()) for module in target.site.runtime.modules] + ["set -u"]
    lines += [
        call("pick_runtime", first, second),
        "clear_binds",
        call("temporary_folder", Expanding(build.tmpdir), Expanding(build.cachedir)),
        call("one_time", archive),
        call("packing", compression(target), archive),
        f'"$runtime" build --force "${{pack_options[@]}}" {image}.part {shell.word(f"docker-archive://{archive}")}',
        call("settle", f"{image}.part"),
        call("put_in_place", f"{image}.part", image),
    ]
    return lines


def convert_job(target: Target, *, archive: str, image: str, name: str, script: str) -> JobScript | None:
    """The conversion as a job, None where the site has no job for it: a build's will do."""
    job = target.site.scheduler.jobs.get("convert") or target.site.scheduler.jobs.get("build")
    if job is None:
        return None
    return batch_script(
        target,
        job,
        name=name,
        title=f"Converts {archive} to {image} on a compute node.",
        lines=convert_lines(target, archive=archive, image=image, modules=True),
        purpose="convert",
        script=script,
    )


def convert_script(target: Target, *, archive: str, image: str, modules: bool) -> str:
    """The conversion step on the machine that built the archive."""
    lines = convert_lines(target, archive=archive, image=image, modules=modules)
    return step_script(target, title=f"Converts {archive} to {image}.", modules=(), lines=lines)
