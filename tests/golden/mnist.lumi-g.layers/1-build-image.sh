#!/usr/bin/env bash
# Builds mnist-lumi-g.sif from layers: the base image as it is, and what the recipe adds.
# Written by recipe 0.0.0 for 'mnist' on lumi-g.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime singularity apptainer
pick_python
clear_binds
temporary_folder "/tmp/${USER}" "/tmp/${USER}"
inside_build
if [ "${RECIPE_FETCH:-}" = yes ]; then
    "$python" "${layering[@]}" fetch layers.json --runtime "$runtime" --given "$work/given" -- "${build_binds[@]}"
    exit
fi
"$python" "${layering[@]}" build layers.json --runtime "$runtime" --output mnist-lumi-g.sif.part --given "$work/given" -- "${build_binds[@]}"
put_in_place mnist-lumi-g.sif.part mnist-lumi-g.sif
