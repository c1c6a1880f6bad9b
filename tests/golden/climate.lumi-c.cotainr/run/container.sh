# How this site enters the image; sourced by the scripts beside it.
# shellcheck shell=bash
image=${RECIPE_IMAGE:-"$PWD/climate-lumi-c.sif"}
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
export OMP_NUM_THREADS=8

# in_image COMMAND...: in the folder the script was started in
in_image() {
    "$runtime" exec "${options[@]}" --bind "$PWD" --pwd "$PWD" "$image" "$@"
}
