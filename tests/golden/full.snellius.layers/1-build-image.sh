#!/usr/bin/env bash
# Builds full-of-everything-snellius.sif from layers: the base image as it is, and what the recipe adds.
# Written by recipe 0.0.0 for 'Full_of.everything' on snellius.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
pick_python
login_for docker.io site
clear_binds
temporary_folder "/dev/shm/${USER}" "/scratch-shared/${USER}/apptainer"
inside_build
if [ "${RECIPE_FETCH:-}" = yes ]; then
    "$python" "${layering[@]}" fetch layers.json --runtime "$runtime" --given "$work/given" -- "${build_binds[@]}"
    exit
fi
"$python" "${layering[@]}" build layers.json --runtime "$runtime" --output full-of-everything-snellius.sif.part --given "$work/given" -- "${build_binds[@]}"
put_in_place full-of-everything-snellius.sif.part full-of-everything-snellius.sif
