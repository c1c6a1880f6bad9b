"""tykky, the LUMI container wrapper: a folder whose bin/ holds wrappers around a container (LUMI, CSC)."""

from __future__ import annotations

from builder.compile.backend_plan import Build, constraints_unserved, size_gib, unserved
from builder.compile.image_files import environment_file, image_name
from builder.compile.render import verbatim
from builder.compile.scripts import (
    build_job,
    call,
    conda_cuda,
    files_of,
    own_caches,
    proxy_lines,
    step_script,
    with_job,
)
from builder.compile.smoke_step import verify_step
from builder.model.finding import Finding, Place
from builder.model.plan import Expanding, File, Step
from builder.model.target import Target

FIX = "use another site for it, or leave it out"


def findings(target: Target) -> tuple[Finding, ...]:
    """tykky installs into a container that looks like the host: no distribution packages, files or labels."""
    found = list(unserved(target, keys=("system", "files", "labels", "base"), backend="tykky", fix=FIX))
    found += constraints_unserved(target, backend="tykky")
    own = {**target.recipe.variables, **target.recipe.container.env}
    if own:
        line = target.recipe.lines.get("container.env") or target.recipe.lines.get("variables")
        message = "the wrappers of tykky carry no variables of the recipe: the run scripts give them to the container"
        fix = f"with other ways to start them, export {', '.join(sorted(own))} yourself, each as SINGULARITYENV_NAME"
        at = Place(file=target.recipe.file, line=line)
        found.append(Finding(code="tykky-env", message=message, at=at, fix=fix, level="note"))
    if target.site.build.wrapper_path == "":
        message = f"the site '{target.site.name}' does not say where tykky puts its environment"
        found.append(
            Finding(code="tykky-path", message=message, at=Place(key="build.wrapper_path"), fix="add it to the site")
        )
    return tuple(found)


def plan(target: Target) -> Build:
    """The environment file, what runs after it, and the call."""
    name = image_name(target)
    script = "1-build-image.sh"
    files = [
        File(path="engine.sh", text=verbatim("engine.sh")),
        File(path="environment.yml", text=environment_file(target, with_pip=True)),
        File(path=script, text=build_script(target, name=name), executable=True),
    ]
    if target.recipe.container.run:
        text = "set -e\n" + "".join(f"{command.rstrip()}\n" for command in target.recipe.container.run)
        files.append(File(path="post-install.sh", text=text))
    job = build_job(target, script=script, name=name, title=f"Builds the installation {name}")
    step = Step(
        name="build-image",
        kind="build",
        why=f"build the installation {name} with conda-containerize",
        script=script,
        produces=(f"{name}/bin/python3", f"{name}/container.sif", f"{name}/img.sqfs"),
        programs=() if target.site.build.backend_modules.get("tykky") else ("conda-containerize",),
        space_gib=size_gib(target) * 2,
    )
    verify, proof_files = verify_step(target, script="2-verify.sh", name=name)
    return Build(
        image=name,
        image_kind="folder",
        files=(*files, *files_of(job), *proof_files),
        steps=(with_job(step, job), verify),
    )


def build_script(target: Target, *, name: str) -> str:
    """The call: options of 0.4.2 only (no --uv, no --nocache); mamba solves faster than conda.

    An installation whose bin/ is on PATH stops `new`; --prefix must be there and be writable
    (frontends/script_shared.py of hpc-container-wrapper 0.4.2). The wrappers find their folder by themselves, so the
    installation can be moved as a whole.
    """
    build = target.site.build
    part = f"{name}.part"
    post = ["--post-install", "post-install.sh"] if target.recipe.container.run else []
    lines = [
        'command -v conda-containerize >/dev/null || fail "there is no conda-containerize: is its module loaded?"',
        *proxy_lines(target),
        "clear_binds",
        conda_cuda(target),
        call("temporary_folder", Expanding(build.tmpdir), Expanding(build.cachedir)),
        'export CW_BUILD_TMPDIR="$work"',
        *own_caches(target),
        f"rm -rf {part} {name}.old",
        f"mkdir {part}",
        call("conda-containerize", "new", "--mamba", "--prefix", part, *post, "environment.yml") + " </dev/null",
        f'[ -x {part}/bin/python3 ] || fail "conda-containerize ended without an error and wrote no wrappers"',
        f"if [ -e {name} ]; then mv {name} {name}.old; fi",
        f"mv {part} {name}",
        f"rm -rf {name}.old",
    ]
    title = f"Builds the installation {name} with the container wrapper (tykky)."
    modules = (*build.modules, *build.backend_modules.get("tykky", ()))
    return step_script(target, title=title, modules=modules, lines=lines)
