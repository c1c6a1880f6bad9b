# How this site starts the installation; sourced by the other scripts of this folder, or by hand in bash.
# shellcheck shell=bash
[ -n "${BASH_VERSION:-}" ] || { echo "recipe: error: run/container.sh is for bash" >&2 && return 1; }
image=${RECIPE_IMAGE:-"$PWD/mnist-lumi-c"}
export PATH="$image/bin:$PATH"
export PYTHONNOUSERSITE=1

# in_image COMMAND...: the wrappers of the installation start its container
in_image() {
    (cd -- "${RECIPE_WORKDIR:-.}" && exec "$@")
}

# exec_image COMMAND...: replaces this process, so that signals reach the command
exec_image() {
    cd -- "${RECIPE_WORKDIR:-.}" || exit
    exec "$@"
}
