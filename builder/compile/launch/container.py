"""`container.sh`: how a site enters the image, with its runtime, flags and binds."""

from __future__ import annotations

from builder.compile import shell
from builder.compile.content import carried, image_name
from builder.compile.scripts import runtime_command
from builder.model.plan import Expanding, Word
from builder.model.target import Target

# Packages of the user's home are no part of an image; nor is the Python that a module of the host has set up.
ALONE = {"PYTHONNOUSERSITE": "1"}
_CALL = '"$runtime" exec "${options[@]}" --bind "$PWD" --pwd "${RECIPE_WORKDIR:-$PWD}" "$image" "$@"'
# The wrappers of tykky make PATH from the host's (generate_wrappers.sh of hpc-container-wrapper 0.4.2).
_WITH_PATH = 'import os, sys; os.environ["PATH"] = sys.argv[1]; os.execvp(sys.argv[2], sys.argv[2:])'


def container_script(target: Target) -> str:
    """Define in_image, which runs a command in the image, and exec_image, which becomes that command."""
    if target.backend == "tykky":
        return _tykky(target)
    first, second = runtime_command(target)
    lines = [
        "# How this site enters the image; sourced by the scripts beside it.",
        "# shellcheck shell=bash",
        f'image=${{RECIPE_IMAGE:-"$PWD/{image_name(target)}.sif"}}',
        f"runtime=$(command -v {first} || command -v {second}) || {{",
        f"    echo 'recipe: error: neither {first} nor {second} is installed' >&2",
        "    exit 1",
        "}",
        *_options(target),
        'if [ -d "${RECIPE_RESULTS:-}" ]; then options+=(--bind "$RECIPE_RESULTS"); fi',
        'if [ -n "${RECIPE_WORKDIR:-}" ]; then options+=(--bind "$RECIPE_WORKDIR"); fi',
        *_variables(target),
        "",
        "# in_image COMMAND...: in the folder the script was started in, or in RECIPE_WORKDIR",
        "in_image() {",
        f"    {_CALL}" if not carried(target) else f"    (image_variables && exec {_CALL})",
        "}",
        "",
        "# exec_image COMMAND...: becomes it, so that a signal to this process reaches it",
        "exec_image() {",
        *(["    image_variables"] if carried(target) else []),
        f"    exec {_CALL}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _options(target: Target) -> list[str]:
    """Flags and binds; what a site binds from its own disks is bound where it exists (its file names drift)."""
    runtime = target.site.runtime
    flags: list[Word] = [*([runtime.gpu_flag] if runtime.gpu_flag else []), *runtime.options]
    flags += [word for bind in runtime.binds for word in ("--bind", Expanding(bind))]
    lines = ["options=(" + " ".join(shell.word(flag) for flag in flags) + ")"]
    if runtime.optional_binds:
        lines.append("for path in \\")
        lines += [f"    {shell.word(Expanding(bind))} \\" for bind in runtime.optional_binds]
        lines[-1] = lines[-1].removesuffix(" \\")
        lines += ["do", '    if [ -e "${path%%:*}" ]; then options+=(--bind "$path"); fi', "done"]
    return lines + shell.export(ALONE)


def _variables(target: Target) -> list[str]:
    """`image_variables`: what an image without variables of its own is given each time it is entered.

    The names that the runtime takes for those of the image are set around one call and obeyed by nothing on the way;
    `--env` would split values at commas, and it and `--env-file` evaluate them (seen with Apptainer 1.4.5).
    """
    names = carried(target)
    if not names:
        return []
    return [
        "",
        "# image_variable NAME VALUE: inside the image only; what the user has set there wins",
        "image_variable() {",
        "    local apptainer=APPTAINERENV_$1 singularity=SINGULARITYENV_$1",
        '    if [ -z "${!apptainer+set}${!singularity+set}" ]; then export "$apptainer=$2" "$singularity=$2"; fi',
        "}",
        "",
        "# image_variables: those of the recipe, as they stand, for the call that follows in the same shell",
        "# shellcheck disable=SC2016",
        "image_variables() {",
        "    export APPTAINER_NO_EVAL=1 SINGULARITY_NO_EVAL=1",
        *(f"    image_variable {name} {shell.word(value)}" for name, value in names.items() if name != _late(target)),
        "}",
    ]


def _late(target: Target) -> str:
    """The one variable that tykky's wrappers set themselves: it is set behind them."""
    return "PATH" if target.backend == "tykky" else ""


def _tykky(target: Target) -> str:
    lines = [
        "# How this site enters the installation; sourced by the scripts beside it.",
        "# shellcheck shell=bash",
        f'image=${{RECIPE_IMAGE:-"$PWD/{image_name(target)}"}}',
        'export PATH="$image/bin:$PATH"',
        *shell.export(ALONE),
        *_variables(target),
        "",
        "# in_image COMMAND...: the wrappers of the installation enter its container by themselves",
        "in_image() {",
        '    (exec_image "$@")' if carried(target) else '    (cd -- "${RECIPE_WORKDIR:-.}" && exec "$@")',
        "}",
        "",
        "# exec_image COMMAND...: becomes it, so that a signal to this process reaches it",
        "exec_image() {",
        '    cd -- "${RECIPE_WORKDIR:-.}" || exit',
        *(["    image_variables"] if carried(target) else []),
        f'    exec {_behind_the_wrapper(target)}"$@"',
        "}",
    ]
    return "\n".join(lines) + "\n"


def _behind_the_wrapper(target: Target) -> str:
    """Words before a command that set the recipe's PATH in the container, where it has one."""
    path = carried(target).get(_late(target))
    if path is None:
        return ""
    return f'"$image/bin/python3" -IS -c {shell.word(_WITH_PATH)} {shell.word(path)} '
