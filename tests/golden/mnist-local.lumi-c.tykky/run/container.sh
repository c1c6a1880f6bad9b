# How this site enters the installation; sourced by the scripts beside it.
# shellcheck shell=bash
image=${RECIPE_IMAGE:-"$PWD/digits-lumi-c"}
export PATH="$image/bin:$PATH"
export PYTHONNOUSERSITE=1

# image_variable NAME VALUE: inside the image only; what the user has set there wins
image_variable() {
    local apptainer=APPTAINERENV_$1 singularity=SINGULARITYENV_$1
    if [ -z "${!apptainer+set}${!singularity+set}" ]; then export "$apptainer=$2" "$singularity=$2"; fi
}

# image_variables: those of the recipe, as they stand, for the call that follows in the same shell
# shellcheck disable=SC2016
image_variables() {
    export APPTAINER_NO_EVAL=1 SINGULARITY_NO_EVAL=1
    image_variable GREETING 'trained on this machine'
}

# in_image COMMAND...: the wrappers of the installation enter its container by themselves
in_image() {
    (exec_image "$@")
}

# exec_image COMMAND...: becomes it, so that a signal to this process reaches it
exec_image() {
    cd -- "${RECIPE_WORKDIR:-.}" || exit
    image_variables
    exec "$@"
}
