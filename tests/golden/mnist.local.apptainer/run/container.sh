# How this site enters the image; sourced by the scripts beside it.
# shellcheck shell=bash
image=${RECIPE_IMAGE:-"$PWD/mnist-local.sif"}
runtime=$(command -v apptainer || command -v singularity) || {
    echo 'recipe: error: neither apptainer nor singularity is installed' >&2
    exit 1
}
options=()

# in_image COMMAND...: in the folder the script was started in
in_image() {
    "$runtime" exec "${options[@]}" --bind "$PWD" --pwd "$PWD" "$image" "$@"
}
