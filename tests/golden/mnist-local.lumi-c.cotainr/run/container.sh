# How this site enters the image; sourced by the scripts beside it.
# shellcheck shell=bash
image=${RECIPE_IMAGE:-"$PWD/digits-lumi-c.sif"}
runtime=$(command -v singularity || command -v apptainer) || {
    echo 'recipe: error: neither singularity nor apptainer is installed' >&2
    exit 1
}
options=()
for path in \
    "/var/spool/slurmd" \
    "/opt/cray" \
    "/usr/lib64/libcxi.so.1" \
    "/usr/lib64/libjansson.so.4" \
    "/pfs" \
    "/scratch" \
    "/projappl" \
    "/project" \
    "/flash" \
    "/appl"
do
    if [ -e "${path%%:*}" ]; then options+=(--bind "$path"); fi
done
export PYTHONNOUSERSITE=1
if [ -d "${RECIPE_RESULTS:-}" ]; then options+=(--bind "$RECIPE_RESULTS"); fi
if [ -n "${RECIPE_WORKDIR:-}" ]; then options+=(--bind "$RECIPE_WORKDIR"); fi

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

# in_image COMMAND...: in the folder the script was started in, or in RECIPE_WORKDIR
in_image() {
    (image_variables && exec "$runtime" exec "${options[@]}" --bind "$PWD" --pwd "${RECIPE_WORKDIR:-$PWD}" "$image" "$@")
}

# exec_image COMMAND...: becomes it, so that a signal to this process reaches it
exec_image() {
    image_variables
    exec "$runtime" exec "${options[@]}" --bind "$PWD" --pwd "${RECIPE_WORKDIR:-$PWD}" "$image" "$@"
}
