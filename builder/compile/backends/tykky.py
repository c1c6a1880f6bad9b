"""tykky, the LUMI container wrapper: a folder whose bin/ contains wrappers around a container (LUMI, CSC)."""

from __future__ import annotations

from builder.compile.backend_plan import (
    BackendPlan,
    check_constraints,
    check_unsupported_keys,
    list_audit_copies,
    locate_variables,
    make_audit_lines,
    plan_one_step,
)
from builder.compile.image_files import make_environment_file, make_pip_section, make_run_script, name_image
from builder.compile.step_scripts import (
    isolate_caches,
    make_call,
    make_conda_override,
    make_proxy_lines,
    make_step_script,
)
from builder.model.finding import Finding, Location
from builder.model.installation import RECORD, InstalledFile, to_json
from builder.model.plan import PlanFile, ShellExpr
from builder.model.target import Target

# In a sub-shell: tykky reads this file in the shell of its own work.
POST_INSTALL = """\
set -e
recipe_reached=$(mktemp)
failed() { read -r number _ <"$recipe_reached"; echo "recipe: command $number of container.run failed" >&2; }
(
trap '[ "$?" = 0 ] || failed' EXIT
%s)
read -r number _ total until <"$recipe_reached"
rm -f "$recipe_reached"
if [ "$number$until" != "$total" ]; then
    echo "recipe: error: command $number of container.run ends the shell: what comes after it did not run" >&2
    exit 1
fi
"""


def check(target: Target) -> tuple[Finding, ...]:
    """Report what tykky does not support: distribution packages, files, labels and base images."""
    found = list(check_unsupported_keys(target, keys=("system", "files", "labels", "base"), backend="tykky"))
    found += check_constraints(target, backend="tykky")
    if own := locate_variables(target, otherwise="them otherwise"):
        message = "the wrappers of tykky set no variables of the recipe: the run scripts set them"
        found.append(Finding(code="tykky-env", message=message, at=own[0], fix=own[1], level="note"))
    if target.site.build.wrapper_path == "":
        message = f"the site '{target.site.name}' does not say where tykky puts its environment"
        fix = "add it to the site"
        found.append(Finding(code="tykky-path", message=message, at=Location(key="build.wrapper_path"), fix=fix))
    return tuple(found)


def plan(target: Target) -> BackendPlan:
    """Make the environment file, the post-install script and the script with the call."""
    name, commands = name_image(target), target.recipe.container.run
    more = [PlanFile(path=RECORD, text=to_json(make_record(target)))]
    if commands:
        more.append(PlanFile(path="post-install.sh", text=POST_INSTALL % make_run_script(commands, done="RECIPE_RAN")))
    if pip := make_pip_section(target):
        more.append(PlanFile(path="requirements.txt", text="".join(f"{line}\n" for line in pip)))
    return plan_one_step(
        target,
        image=name,
        definition=PlanFile(path="environment.yml", text=make_environment_file(target, with_pip=True)),
        script=make_build_script(target, name=name),
        more=more,
        why=f"build the installation {name} with conda-containerize",
        programs=() if target.site.build.backend_modules.get("tykky") else ("conda-containerize",),
        produces=(f"{name}/bin/python3", f"{name}/container.sif", f"{name}/img.sqfs"),
        copies=list_audit_copies(target),
    )


def make_record(target: Target) -> InstalledFile:
    """Make the record of what the installation is made of, which it keeps: an update compares it."""
    return InstalledFile(
        environment=make_environment_file(target, with_pip=False),
        pip=tuple(make_pip_section(target)),
        run=target.recipe.container.run,
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
    pip = ["--requirement", "requirements.txt"] if make_pip_section(target) else []
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
        "# RECIPE_UPDATE: an installation that gets what pip has to add, and the commands after the first RECIPE_RAN",
        'if [ -n "${RECIPE_UPDATE:-}" ]; then',
        f'    cp -a -- "$RECIPE_UPDATE" {part}',
        f"    {' '.join(['conda-containerize update', *pip, *post, part])} </dev/null",
        "else",
        f"    mkdir {part}",
        f"    {' '.join(['conda-containerize new --mamba --prefix', part, *post, 'environment.yml'])} </dev/null",
        "fi",
        f'[ -x {part}/bin/python3 ] || fail "conda-containerize reported no error but wrote no wrappers"',
        f"mkdir -p {part}/share",
        f"cp {RECORD} {part}/share/",
        *make_audit_lines(target, part),
        f"if [ -e {name} ]; then mv {name} {name}.old; fi",
        f"mv {part} {name}",
        f"rm -rf {name}.old",
    ]
    title = f"Builds the installation {name} with the container wrapper (tykky)."
    modules = (*build.modules, *build.backend_modules.get("tykky", ()))
    return make_step_script(target, title=title, modules=modules, lines=lines)
