# How this site starts the image; sourced by the other scripts of this folder.
# shellcheck shell=bash
image=${RECIPE_IMAGE:-"$PWD/full-of-everything-mn5.sif"}
runtime=$(command -v singularity || command -v apptainer) || {
    echo 'recipe: error: neither singularity nor apptainer is installed' >&2
    exit 1
}
options=(--nv)
for path in \
    "/gpfs" \
    "/apps"
do
    if [ -e "${path%%:*}" ]; then options+=(--bind "$path"); fi
done
export PYTHONNOUSERSITE=1
if [ -d "${RECIPE_RESULTS:-}" ]; then options+=(--bind "$RECIPE_RESULTS"); fi
if [ -n "${RECIPE_WORKDIR:-}" ]; then options+=(--bind "$RECIPE_WORKDIR"); fi

# in_image COMMAND...: in the folder the script was started in, or in RECIPE_WORKDIR
in_image() {
    "$runtime" exec "${options[@]}" --bind "$PWD" --pwd "${RECIPE_WORKDIR:-$PWD}" "$image" "$@"
}

# exec_image COMMAND...: replaces this process, so that signals reach the command
exec_image() {
    exec "$runtime" exec "${options[@]}" --bind "$PWD" --pwd "${RECIPE_WORKDIR:-$PWD}" "$image" "$@"
}
