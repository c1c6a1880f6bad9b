# How this site enters the image; sourced by the scripts beside it.
# shellcheck shell=bash
image=${RECIPE_IMAGE:-"$PWD/plots-mn5-gpp.sif"}
runtime=$(command -v singularity || command -v apptainer) || {
    echo 'recipe: error: neither singularity nor apptainer is installed' >&2
    exit 1
}
options=()
for path in \
    "/gpfs" \
    "/apps"
do
    if [ -e "${path%%:*}" ]; then options+=(--bind "$path"); fi
done

# in_image COMMAND...: in the folder the script was started in
in_image() {
    "$runtime" exec "${options[@]}" --bind "$PWD" --pwd "$PWD" "$image" "$@"
}
