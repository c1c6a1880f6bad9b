"""`container.sh`: how a site enters the image, with its runtime, flags and binds."""

from __future__ import annotations

from builder.compile import shell
from builder.compile.content import image_name, variables
from builder.compile.scripts import runtime_command
from builder.model.plan import Expanding, Word
from builder.model.target import Target

# Packages of the user's home are no part of an image; nor is the Python that a module of the host has set up.
ALONE = {"PYTHONNOUSERSITE": "1"}


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
        "",
        "# in_image COMMAND...: in the folder the script was started in, or in RECIPE_WORKDIR",
        "in_image() {",
        '    "$runtime" exec "${options[@]}" --bind "$PWD" --pwd "${RECIPE_WORKDIR:-$PWD}" "$image" "$@"',
        "}",
        "",
        "# exec_image COMMAND...: becomes it, so that a signal to this process reaches it",
        "exec_image() {",
        '    exec "$runtime" exec "${options[@]}" --bind "$PWD" --pwd "${RECIPE_WORKDIR:-$PWD}" "$image" "$@"',
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
    # A cotainr image carries no variables of its own.
    return lines + shell.export(variables(target) if target.backend == "cotainr" else ALONE)


def _tykky(target: Target) -> str:
    lines = [
        "# How this site enters the installation; sourced by the scripts beside it.",
        "# shellcheck shell=bash",
        f'image=${{RECIPE_IMAGE:-"$PWD/{image_name(target)}"}}',
        'export PATH="$image/bin:$PATH"',
        *shell.export(variables(target)),
        "",
        "# in_image COMMAND...: the wrappers of the installation enter its container by themselves",
        "in_image() {",
        '    (cd -- "${RECIPE_WORKDIR:-.}" && exec "$@")',
        "}",
        "",
        "# exec_image COMMAND...: becomes it, so that a signal to this process reaches it",
        "exec_image() {",
        '    cd -- "${RECIPE_WORKDIR:-.}" || exit',
        '    exec "$@"',
        "}",
    ]
    return "\n".join(lines) + "\n"
