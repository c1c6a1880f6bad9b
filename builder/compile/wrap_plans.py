"""Plans that make a folder of wrappers (tykky) around an image, or around a folder with installed programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from builder.compile import shell
from builder.compile.compile import make_job_files
from builder.compile.image_files import slugify
from builder.compile.render import read_template
from builder.compile.step_scripts import (
    attach_job,
    list_job_files,
    make_build_job,
    make_call,
    make_proxy_lines,
    make_step_script,
)
from builder.model.plan import Plan, PlanFile, ShellExpr, Step, Word
from builder.model.target import Target

SCRIPT = "1-wrap.sh"
ENVIRON, RELOCATE, POST_INSTALL = "environ.sh", "relocate.py", "post-install.sh"
COPIES = 3.0  # of what is wrapped: the copy that is changed, the packed one, and the draft


@dataclass(frozen=True, kw_only=True)
class WrapSource:
    """What gets wrappers: an image, or a folder that is copied into a container.

    `programs` are paths in it: of programs, or of folders with programs; absolute in an image, relative in a folder.
    `prefixes` are the paths that the files of a folder say they are at, and `python` is its own Python.
    """

    path: str  # absolute
    programs: tuple[str, ...]
    folder: bool = False
    prefixes: tuple[str, ...] = ()
    python: str = ""
    gib: float = 0.0


def make_wrap_plan(target: Target, wrapped: WrapSource) -> Plan:
    """Make a plan that wraps an image or a folder for the target's site; its product is a folder."""
    name = f"{slugify(target.recipe.name)}-tykky"
    program = "wrap-install" if wrapped.folder else "wrap-container"
    what = f"{'folder' if wrapped.folder else 'image'} {PurePosixPath(wrapped.path).name}"
    files = [
        PlanFile(path=ENVIRON, text=make_environ(target, isolated=not wrapped.folder)),
        *_make_relocation(wrapped),
        PlanFile(path=SCRIPT, text=make_wrap_script(target, wrapped, name=name), executable=True),
        PlanFile(path="engine.sh", text=read_template("engine.sh")),
        *make_job_files(target),
    ]
    title = f"Makes the wrappers {name} of the {what}"
    job = make_build_job(target, script=SCRIPT, name=slugify(target.recipe.name), title=title)
    step = Step(
        name="wrap",
        kind="convert",
        why=f"make the wrappers {name} of the {what} with {program}",
        script=SCRIPT,
        produces=(f"{name}/common.sh", f"{name}/container.sif", *([f"{name}/img.sqfs"] if wrapped.folder else [])),
        programs=() if target.site.build.backend_modules.get("tykky") else (program,),
        space_gib=wrapped.gib * COPIES,
    )
    return Plan(
        target=f"{target.recipe.name}.{target.site.name}.wrap",
        recipe=target.recipe.name,
        site=target.site.name,
        backend=target.backend,
        vendor=target.site.vendor,
        image=name,
        image_kind="folder",
        base=wrapped.path,
        steps=(attach_job(step, job),),
        files=(*files, *list_job_files(job)),
        tool=target.context.tool,
        tmpdir=target.site.build.tmpdir,
    )


def make_wrap_script(target: Target, wrapped: WrapSource, *, name: str) -> str:
    """Make the script with the call, with options of 0.4.2.

    The program ends with 0 where a path to wrap is not there, and makes no wrapper of it: the script looks for them.
    """
    part, build = f"{name}.part", target.site.build
    program = "wrap-install" if wrapped.folder else "wrap-container"
    words: list[Word] = [program, "--environ", ENVIRON, "--wrapper-paths", ",".join(wrapped.programs)]
    words += ["--post-install", POST_INSTALL] if wrapped.prefixes else []
    words += ["--prefix", part, wrapped.path]
    missing = f"{program} reported no error, and made no wrapper of"
    lines = [
        f"command -v {program} >/dev/null ||",
        f'    fail "{program} is not installed, or its module is not loaded"',
        *make_proxy_lines(target),
        "clear_binds",
        make_call("temporary_folder", ShellExpr(build.tmpdir), ShellExpr(build.cachedir)),
        'export CW_BUILD_TMPDIR="$work"',
        f"rm -rf {part} {name}.old",
        f"mkdir {part}",
        make_call(*words) + " </dev/null",
        "# has_wrapper PATH: whether a wrapper starts that program, or one of that folder",
        "has_wrapper() {",
        "    local link",
        f"    for link in {part}/_bin/*; do",
        '        case "$(readlink -- "$link" | tr -s /)" in *"$1" | *"$1"/*) return 0 ;; esac',
        "    done",
        "    return 1",
        "}",
    ]
    for path in wrapped.programs:
        lines.append(f"{make_call('has_wrapper', '/' + path.strip('/'))} || {make_call('fail', f'{missing} {path}')}")
    lines += [
        f"if [ -e {name} ]; then mv {name} {name}.old; fi",
        f"mv {part} {name}",
        f"rm -rf {name}.old",
    ]
    title = f"Makes the wrappers {name} with {program} of the container wrapper (tykky)."
    return make_step_script(target, title=title, modules=_list_modules(target), lines=lines)


def _list_modules(target: Target) -> Sequence[str]:
    build = target.site.build
    return (*build.modules, *build.backend_modules.get("tykky", ()))


def make_environ(target: Target, *, isolated: bool) -> str:
    """Make what each wrapper sources before it starts the container.

    wrap-container binds few folders, and no wrapper gives the engine an option: the site's binds and its GPUs are set
    by the engine's variables (generate_wrappers.sh of hpc-container-wrapper 0.4.2).
    """
    runtime = target.site.runtime
    lines = [
        "# Sourced by every wrapper before it starts the container.",
        "# shellcheck shell=bash",
        "# The packages of the user's home are not the image's.",
        'export PYTHONNOUSERSITE="${PYTHONNOUSERSITE-1}"',
    ]
    if isolated:
        gpu = runtime.gpu_flag.removeprefix("--").upper()
        lines += [f"export APPTAINER_{gpu}=1 SINGULARITY_{gpu}=1"] if gpu in ("NV", "ROCM") else []
        lines += ["# What this site binds into every image, where it exists", *_make_bind_lines(runtime.binds)]
        lines += _make_bind_lines(runtime.optional_binds)
        lines += [
            "# The user's own, which a wrapper adds itself only where it binds all folders",
            'if [ -n "${CW_EXTRA_BIND_MOUNTS:-}" ]; then',
            '    SINGULARITY_BIND="${SINGULARITY_BIND:+$SINGULARITY_BIND,}$CW_EXTRA_BIND_MOUNTS"',
            "fi",
            "export SINGULARITY_BIND",
        ]
    return "\n".join(lines) + "\n"


def _make_bind_lines(binds: Iterable[str]) -> list[str]:
    words = [shell.quote_word(ShellExpr(bind)) for bind in binds]
    if not words:
        return []
    return [
        *(["# shellcheck disable=SC2043"] if len(words) == 1 else []),
        f"for _path in {' '.join(words)}; do",
        '    case ",${SINGULARITY_BIND:-}," in *",$_path,"*) continue ;; esac',
        '    if [ -e "${_path%%:*}" ]; then SINGULARITY_BIND="${SINGULARITY_BIND:+$SINGULARITY_BIND,}$_path"; fi',
        "done",
    ]


def _make_relocation(wrapped: WrapSource) -> tuple[PlanFile, ...]:
    """Make the script that gives the copy of a folder its path in the container, where it has another one."""
    if not wrapped.prefixes:
        return ()
    python = ShellExpr(f"${{CW_INSTALLATION_PATH}}/{wrapped.python}")
    call = make_call(python, "-I", "-S", "-B", RELOCATE, ShellExpr("${CW_INSTALLATION_PATH}"), *wrapped.prefixes)
    text = f"""\
# Sourced by the container wrapper in the container, where the copy of the folder has its last path. A script of it that
# still has the old one would start the old folder, or nothing.
# shellcheck shell=bash
{call}
"""
    return PlanFile(path=RELOCATE, text=read_template("relocate.py")), PlanFile(path=POST_INSTALL, text=text)
