"""The part of a plan that a backend makes, and what several backends share: checks, and the file of the GPU audit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from builder.audit import CODE, PLAN
from builder.compile.image_files import name_image
from builder.compile.render import read_template
from builder.compile.step_scripts import attach_job, estimate_size_gib, list_job_files, make_build_job, make_call
from builder.model.finding import Finding, Location
from builder.model.plan import Copy, PlanFile, Step
from builder.model.site import BackendName
from builder.model.target import PREFIX, Target

SCRIPT = "1-build-image.sh"


@dataclass(frozen=True, kw_only=True)
class BackendPlan:
    """Files and steps up to the image, without the smoke test."""

    image: str
    image_kind: Literal["sif", "folder"]
    files: tuple[PlanFile, ...]
    steps: tuple[Step, ...]
    copies: tuple[Copy, ...] = ()


def plan_one_step(
    target: Target,
    *,
    image: str,
    definition: PlanFile,
    script: str,
    more: Iterable[PlanFile] = (),
    why: str,
    programs: tuple[str, ...],
    produces: tuple[str, ...] = (),
    copies: tuple[Copy, ...] = (),
    sizes: int = 2,
) -> BackendPlan:
    """Make the plan of an engine that builds the image in one step, with the text `script`, from `definition`.

    The product is the image by default; the step needs room for `sizes` unpacked images. An engine that runs no code of
    ours in the image has a second step, which asks the image's torch.
    """
    name, folder = name_image(target), target.traits.makes_folder
    title = f"Builds the installation {name}" if folder else f"Builds {image}"
    job = make_build_job(target, script=SCRIPT, name=name, title=title)
    step = Step(
        name="build-image", kind="build", why=why, script=SCRIPT, produces=produces or (image,), programs=programs,
        space_gib=estimate_size_gib(target) * sizes,
    )  # fmt: skip
    steps, files = [attach_job(step, job)], [*list_job_files(job)]
    if target.traits.one_call:
        from builder.compile.smoke_step import make_torch_check_step  # the others ask while they build

        verify, proof_files = make_torch_check_step(target, name=name)
        steps.append(verify)
        files += proof_files
    engine = PlanFile(path="engine.sh", text=read_template("engine.sh"))
    return BackendPlan(
        image=image,
        image_kind="folder" if folder else "sif",
        files=(engine, definition, PlanFile(path=SCRIPT, text=script, executable=True), *more, *files),
        steps=tuple(steps),
        copies=copies,
    )


def locate_variables(target: Target, *, otherwise: str) -> tuple[Location, str] | None:
    """Where the recipe's variables are, which only the run scripts set, and the fix for who starts `otherwise`."""
    recipe = target.recipe
    own = {**recipe.variables, **recipe.container.env}
    at = Location(file=recipe.file, line=recipe.lines.get("container.env") or recipe.lines.get("variables"))
    fix = f"to start {otherwise}, export {', '.join(sorted(own))} yourself, each as SINGULARITYENV_NAME"
    return (at, fix) if own else None


def list_other_backends(target: Target, *able: BackendName) -> str:
    """Write the options that choose another capable backend of the site; "" if it has none."""
    names = [name for name in target.site.build.backends if name in able and name != target.backend]
    return " or ".join(f"--backend {name}" for name in names)


def check_unsupported_keys(target: Target, *, keys: tuple[str, ...], backend: str) -> tuple[Finding, ...]:
    """Report each key of the container section that the backend does not support."""
    container = target.recipe.container
    found = []
    fix = "use another site, or remove it"
    for key in keys:
        if getattr(container, key):
            at = Location(
                file=target.recipe.file, line=target.recipe.lines.get(f"container.{key}"), key=f"container.{key}"
            )
            message = f"{backend}, the backend for '{target.site.name}', does not support container.{key}"
            found.append(Finding(code=f"{backend}-{key}", message=message, at=at, fix=fix))
    return tuple(found)


def check_constraints(target: Target, *, backend: str) -> tuple[Finding, ...]:
    """Report constraints (`-c`) for a backend that takes one environment file only."""
    own = target.recipe.pip_options.constraints
    if not target.environment.constraints[len(target.environment.torch_lines) :]:
        return ()
    at = Location(file=own[0].file or target.recipe.file, line=own[0].line)
    message = f"{backend}, the backend for '{target.site.name}', does not support constraints (-c)"
    ways = list_other_backends(target, "layers", "apptainer", "docker")
    fix = f"write the versions as requirements, or {f'build with {ways}' if ways else 'use another site'}"
    return (Finding(code=f"{backend}-constraints", message=message, at=at, fix=fix),)


def make_audit_files(target: Target) -> tuple[PlanFile, ...]:
    """Make the file; a site without a GPU has nothing to be audited for."""
    if target.site.vendor == "cpu":
        return ()
    from builder.resolve.driver import make_machine  # the readers of files are not needed by `check`

    own = () if target.environment.place == "base" else (PREFIX.lstrip("/"),)
    document = {
        "schema": 1,
        "site": target.site.name,
        "machine": asdict(make_machine(target.site)),
        "folders": target.traits.environments or own,
        "cpu": "cpu" in target.recipe.container.gpu,
        "ignored": CODE in target.context.ignored,
    }
    return (PlanFile(path=PLAN, text=json.dumps(document, indent=2, sort_keys=True) + "\n"),)


def make_audit_lines(target: Target, part: str) -> list[str]:
    """Make the line that audits the draft of an image; it ends the script with exit code 6 where a package is wrong."""
    return [make_call("audit_image", part)] if make_audit_files(target) else []


def list_audit_copies(target: Target) -> tuple[Copy, ...]:
    """List the program that audits, for plans that have it for nothing else."""
    return (Copy(source="layering", path="layering", bundled=True),) if make_audit_files(target) else ()
