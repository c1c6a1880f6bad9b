#!/usr/bin/env bash
# Builds mnist-frontier.sif from layers: the base image as it is, and what the recipe adds.
# Written by recipe 0.0.0 for 'mnist' on frontier.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
pick_python
default_proxy all_proxy socks://proxy.ccs.ornl.gov:3128/
default_proxy http_proxy http://proxy.ccs.ornl.gov:3128/
default_proxy https_proxy http://proxy.ccs.ornl.gov:3128/
default_proxy no_proxy 'localhost,127.0.0.0/8,*.ccs.ornl.gov'
login_for savannah.ornl.gov site
clear_binds
temporary_folder '' "/tmp/${USER}/apptainer"
inside_build
if [ "${RECIPE_FETCH:-}" = yes ]; then
    "$python" "${layering[@]}" fetch layers.json --runtime "$runtime" --given "$work/given" -- "${build_binds[@]}"
    exit
fi
"$python" "${layering[@]}" build layers.json --runtime "$runtime" --output mnist-frontier.sif.part --given "$work/given" -- "${build_binds[@]}"
put_in_place mnist-frontier.sif.part mnist-frontier.sif
