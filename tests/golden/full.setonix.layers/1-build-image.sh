#!/usr/bin/env bash
# Builds full-of-everything-setonix.sif from layers: the base image as it is, and what the recipe adds.
# Written by recipe 0.0.0 for 'Full_of.everything' on setonix.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime singularity apptainer
pick_python
login_for quay.io site
clear_binds
temporary_folder '' ''
inside_build
if [ "${RECIPE_FETCH:-}" = yes ]; then
    "$python" "${layering[@]}" fetch layers.json --runtime "$runtime" --given "$work/given" -- "${build_binds[@]}"
    exit
fi
"$python" "${layering[@]}" build layers.json --runtime "$runtime" --output full-of-everything-setonix.sif.part --given "$work/given" -- "${build_binds[@]}"
put_in_place full-of-everything-setonix.sif.part full-of-everything-setonix.sif
