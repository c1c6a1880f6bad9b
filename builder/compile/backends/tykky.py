"""tykky, the LUMI container wrapper: a folder whose bin/ contains wrappers around a container (LUMI, CSC)."""

from __future__ import annotations

from builder.compile.audit_file import list_audit_copies, make_audit_lines
from builder.compile.backend_plan import BackendPlan, check_constraints, check_unsupported_keys, estimate_size_gib
from builder.compile.image_files import make_environment_file, make_run_script, name_image
from builder.compile.render import read_template
from builder.compile.smoke_step import make_torch_check_step
from builder.compile.step_scripts import (
    attach_job,
    isolate_caches,
    list_job_files,
    make_build_job,
    make_call,
    make_conda_override,
    make_proxy_lines,
    make_step_script,
)
from builder.model.finding import Finding, Location
from builder.model.plan import PlanFile, ShellExpr, Step
from builder.model.target import Target

FIX = "use another site, or remove it"
# In a sub-shell: tykky reads this file in the shell of its own work.
POST_INSTALL = """\
set -e
recipe_reached=$(mktemp)
failed() { read -r number _ <"$recipe_reached"; echo "recipe: command $number of container.run failed" >&2; }
(
trap '[ "$?" = 0 ] || failed' EXIT
%s)
read -r number _ total <"$recipe_reached"
rm -f "$recipe_reached"
if [ "$number" != "$total" ]; then
    echo "recipe: error: command $number of container.run ends the shell: the commands after it did not run" >&2
    exit 1
fi
"""


def check(target: Target) -> tuple[Finding, ...]:
    """Report what tykky does not support: distribution packages, files, labels and base images."""
    found = list(check_unsupported_keys(target, keys=("system", "files", "labels", "base"), backend="tykky", fix=FIX))
    found += check_constraints(target, backend="tykky")
    own = {**target.recipe.variables, **target.recipe.container.env}
    if own:
        line = target.recipe.lines.get("container.env") or target.recipe.lines.get("variables")
        message = "the wrappers of tykky set no variables of the recipe: the run scripts set them"
        fix = f"to start them otherwise, export {', '.join(sorted(own))} yourself, each as SINGULARITYENV_NAME"
        at = Location(file=target.recipe.file, line=line)
        found.append(Finding(code="tykky-env", message=message, at=at, fix=fix, level="note"))
    if target.site.build.wrapper_path == "":
        message = f"the site '{target.site.name}' does not say where tykky puts its environment"
        fix = "add it to the site"
        found.append(Finding(code="tykky-path", message=message, at=Location(key="build.wrapper_path"), fix=fix))
    return tuple(found)


def plan(target: Target) -> BackendPlan:
    """Make the environment file, the post-install script and the script with the call."""
    name = name_image(target)
    script = "1-build-image.sh"
    files = [
        PlanFile(path="engine.sh", text=read_template("engine.sh")),
        PlanFile(path="environment.yml", text=make_environment_file(target, with_pip=True)),
        PlanFile(path=script, text=make_build_script(target, name=name), executable=True),
    ]
    if target.recipe.container.run:
        text = POST_INSTALL % make_run_script(target.recipe.container.run)
        files.append(PlanFile(path="post-install.sh", text=text))
    job = make_build_job(target, script=script, name=name, title=f"Builds the installation {name}")
    step = Step(
        name="build-image",
        kind="build",
        why=f"build the installation {name} with conda-containerize",
        script=script,
        produces=(f"{name}/bin/python3", f"{name}/container.sif", f"{name}/img.sqfs"),
        programs=() if target.site.build.backend_modules.get("tykky") else ("conda-containerize",),
        space_gib=estimate_size_gib(target) * 2,
    )
    verify, proof_files = make_torch_check_step(target, script="2-verify.sh", name=name)
    return BackendPlan(
        image=name,
        image_kind="folder",
        files=(*files, *list_job_files(job), *proof_files),
        steps=(attach_job(step, job), verify),
        copies=list_audit_copies(target),
    )


def make_build_script(target: Target, *, name: str) -> str:
    """Make the script with the call, with options of 0.4.2 (no --uv, no --nocache); mamba solves faster than conda.

    `new` fails if an installation's bin/ is on PATH; the folder of --prefix must exist and be writable
    (frontends/script_shared.py of hpc-container-wrapper 0.4.2). The wrappers locate their folder at run time, so the
    installation can be moved as a whole.
    """
    build = target.site.build
    part = f"{name}.part"
    post = ["--post-install", "post-install.sh"] if target.recipe.container.run else []
    lines = [
        "command -v conda-containerize >/dev/null ||",
        '    fail "conda-containerize is not installed, or its module is not loaded"',
        *make_proxy_lines(target),
        "clear_binds",
        make_conda_override(target),
        make_call("temporary_folder", ShellExpr(build.tmpdir), ShellExpr(build.cachedir)),
        'export CW_BUILD_TMPDIR="$work"',
        *isolate_caches(target),
        f"rm -rf {part} {name}.old",
        f"mkdir {part}",
        make_call("conda-containerize", "new", "--mamba", "--prefix", part, *post, "environment.yml") + " </dev/null",
        f'[ -x {part}/bin/python3 ] || fail "conda-containerize reported no error but wrote no wrappers"',
        *make_audit_lines(target, part),
        f"if [ -e {name} ]; then mv {name} {name}.old; fi",
        f"mv {part} {name}",
        f"rm -rf {name}.old",
    ]
    title = f"Builds the installation {name} with the container wrapper (tykky)."
    modules = (*build.modules, *build.backend_modules.get("tykky", ()))
    return make_step_script(target, title=title, modules=modules, lines=lines)
