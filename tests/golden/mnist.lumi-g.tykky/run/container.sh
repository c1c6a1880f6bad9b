# How this site starts the installation; sourced by the other scripts of this folder, or by hand in bash.
# shellcheck shell=bash
[ -n "${BASH_VERSION:-}" ] || { echo "recipe: error: run/container.sh is for bash" >&2 && return 1; }
image=${RECIPE_IMAGE:-"$PWD/mnist-lumi-g"}
export PATH="$image/bin:$PATH"
export PYTHONNOUSERSITE=1
unset PYTHONHOME PYTHONINSPECT PYTHONSTARTUP
# RECIPE_BINDS: the user's own, separated by commas; the wrappers read theirs from CW_EXTRA_BIND_MOUNTS
for path in "${RECIPE_BINDS:-}" "${RECIPE_MNIST:-}"; do
    case "${path:+,${CW_EXTRA_BIND_MOUNTS:-},}" in "" | *",$path,"*) continue ;; esac
    export CW_EXTRA_BIND_MOUNTS="${CW_EXTRA_BIND_MOUNTS:+$CW_EXTRA_BIND_MOUNTS,}$path"
done
# RECIPE_MNIST: a folder with MNIST's files, for the workloads that train
digits=()
if [ -n "${RECIPE_MNIST:-}" ]; then
    digits+=(--data "$RECIPE_MNIST")
fi

# in_image COMMAND...: the wrappers of the installation start its container
in_image() {
    (cd -- "${RECIPE_WORKDIR:-.}" && exec "$@")
}

# exec_image COMMAND...: replaces this process, so that signals reach the command
exec_image() {
    cd -- "${RECIPE_WORKDIR:-.}" || exit
    exec "$@"
}
