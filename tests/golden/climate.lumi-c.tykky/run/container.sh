# How this site enters the installation; sourced by the scripts beside it.
# shellcheck shell=bash
image=${RECIPE_IMAGE:-"$PWD/climate-lumi-c"}
export PATH="$image/bin:$PATH"
export PYTHONNOUSERSITE=1
export OMP_NUM_THREADS=8

# in_image COMMAND...: the wrappers of the installation enter its container by themselves
in_image() {
    (cd -- "${RECIPE_WORKDIR:-.}" && exec "$@")
}

# exec_image COMMAND...: becomes it, so that a signal to this process reaches it
exec_image() {
    cd -- "${RECIPE_WORKDIR:-.}" || exit
    exec "$@"
}
