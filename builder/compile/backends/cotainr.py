"""cotainr (LUMI): a conda environment file and one call, on one of the site's base images."""

from __future__ import annotations

from builder.compile import shell
from builder.compile.backend_plan import (
    BackendPlan,
    check_constraints,
    check_unsupported_keys,
    list_audit_copies,
    locate_variables,
    make_audit_lines,
    plan_one_step,
)
from builder.compile.image_files import make_base_check, make_environment_file, name_image, pin_base_reference
from builder.compile.step_scripts import (
    isolate_caches,
    make_call,
    make_conda_override,
    make_login_lines,
    make_proxy_lines,
    make_step_script,
)
from builder.model.finding import Finding, Location
from builder.model.plan import PlanFile, ShellExpr
from builder.model.target import Target


def check(target: Target) -> tuple[Finding, ...]:
    """Report what one conda environment cannot do: distribution packages, files and commands."""
    found = list(check_unsupported_keys(target, keys=("system", "files", "run", "labels"), backend="cotainr"))
    found += check_constraints(target, backend="cotainr")
    if own := locate_variables(target, otherwise="the image without them"):
        message = "a cotainr image contains no variables: the run scripts set them"
        found.append(Finding(code="cotainr-env", message=message, at=own[0], fix=own[1], level="note"))
    recipe = target.recipe
    for line in recipe.pip:
        if line.editable:
            message, fix = (
                f"'{line.text}' is an editable install, which does not work in an image",
                "write it without -e",
            )
            at = Location(file=line.file or recipe.file, line=line.line)
            found.append(Finding(code="cotainr-editable", message=message, at=at, fix=fix))
    return tuple(found)


def plan(target: Target) -> BackendPlan:
    """Make the environment file, the script with the call and the job that runs it."""
    image = f"{name_image(target)}.sif"
    return plan_one_step(
        target,
        image=image,
        definition=PlanFile(path="environment.yml", text=make_environment_file(target, with_pip=True)),
        script=make_build_script(target, image=image),
        why=f"build {image} with cotainr on {target.base.reference}",
        # The programs of a module are missing until the script loads it.
        programs=() if list_modules(target) else ("cotainr", "singularity"),
        copies=list_audit_copies(target),
    )


def make_build_script(target: Target, *, image: str) -> str:
    """Make the script with the call.

    --base-image is given because --system names another image with every release of the module. --accept-licenses is
    given only if the user accepted them, and this is checked first: cotainr asks late, and without a terminal its
    question ends in a termios error. cotainr asks before it overwrites and exits with 0 if the answer is no, so no old
    output may exist (cotainr/cli.py and util.py of 2025.7.1).
    """
    build = target.site.build
    part = f"{image}.part.sif"
    lines = [
        'cotainr=$(command -v cotainr) || fail "cotainr is not installed, or its module is not loaded"',
        "# cotainr installs Miniforge: its licence is yours to accept, once.",
        'if [ "${RECIPE_ACCEPT_LICENSES:-no}" != yes ]; then',
        '    fail "licence of Miniforge is not accepted: give --accept-licenses, or set RECIPE_ACCEPT_LICENSES=yes"',
        "fi",
        *make_proxy_lines(target),
        *make_login_lines(target),
        make_call("pick_runtime", "singularity", "apptainer"),
        "clear_binds",
        make_conda_override(target),
        make_call("temporary_folder", ShellExpr(build.tmpdir), ShellExpr(build.cachedir)),
        *make_base_check(target),
        f"rm -f {part}",
        *isolate_caches(target),
        "through_environment",
        "export PYTHONNOUSERSITE=1",
        f'"$cotainr" build {part} \\',
        f"  --base-image={shell.quote_word(pin_base_reference(target))} \\",
        "  --conda-env=environment.yml --accept-licenses </dev/null",
        *make_audit_lines(target, part),
        make_call("put_in_place", part, image),
    ]
    title = f"Builds {image} with cotainr."
    return make_step_script(target, title=title, modules=list_modules(target), lines=lines)


def list_modules(target: Target) -> tuple[str, ...]:
    """List the modules of the build, without those for running."""
    build = target.site.build
    return (*target.site.runtime.modules, *build.modules, *build.backend_modules.get(target.backend, ()))
