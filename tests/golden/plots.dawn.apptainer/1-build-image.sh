#!/usr/bin/env bash
# Builds plots-dawn.sif with apptainer.
# Written by recipe 0.0.0 for 'plots' on dawn.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
login_for docker.io site
clear_binds
temporary_folder "/local/${USER}/tmp" "/local/${USER}/cache"
one_time docker://intel/intel-extension-for-pytorch:2.8.10-xpu
packing default
dated plots-dawn.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" plots-dawn.sif.part "$definition"
settle plots-dawn.sif.part
put_in_place plots-dawn.sif.part plots-dawn.sif
