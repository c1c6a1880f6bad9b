# How this site starts the image; sourced by the other scripts of this folder, or by hand in bash.
# shellcheck shell=bash
[ -n "${BASH_VERSION:-}" ] || { echo "recipe: error: run/container.sh is for bash" >&2 && return 1; }
image=${RECIPE_IMAGE:-"$PWD/full-of-everything-leonardo.sif"}
runtime=$(command -v singularity || command -v apptainer) || {
    echo 'recipe: error: neither singularity nor apptainer is installed' >&2
    return 1 # by hand this is the user's own shell
}
options=(--nv)
for path in \
    "/leonardo" \
    "/leonardo_scratch" \
    "/leonardo_work"
do
    if [ -e "${path%%:*}" ]; then options+=(--bind "$path"); fi
done
export PYTHONNOUSERSITE=1
unset PYTHONHOME PYTHONINSPECT PYTHONSTARTUP
if [ -d "${RECIPE_RESULTS:-}" ]; then options+=(--bind "$RECIPE_RESULTS"); fi
if [ -n "${RECIPE_WORKDIR:-}" ]; then options+=(--bind "$RECIPE_WORKDIR"); fi
# RECIPE_BINDS: the user's own, separated by commas
if [ -n "${RECIPE_BINDS:-}" ]; then options+=(--bind "$RECIPE_BINDS"); fi
# RECIPE_MNIST: a folder with MNIST's files, for the workloads that train
digits=()
if [ -n "${RECIPE_MNIST:-}" ]; then
    options+=(--bind "$RECIPE_MNIST:/media:ro")
    digits+=(--data /media)
fi

# in_image COMMAND...: in the folder the script was started in, or in RECIPE_WORKDIR
in_image() {
    "$runtime" exec "${options[@]}" --bind "$PWD" --pwd "${RECIPE_WORKDIR:-$PWD}" "$image" "$@"
}

# exec_image COMMAND...: replaces this process, so that signals reach the command
exec_image() {
    exec "$runtime" exec "${options[@]}" --bind "$PWD" --pwd "${RECIPE_WORKDIR:-$PWD}" "$image" "$@"
}
