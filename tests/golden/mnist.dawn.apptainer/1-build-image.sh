#!/usr/bin/env bash
# Builds mnist-dawn.sif with apptainer.
# Written by recipe 0.0.0 for 'mnist' on dawn.
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
dated mnist-dawn.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" mnist-dawn.sif.part "$definition"
settle mnist-dawn.sif.part
put_in_place mnist-dawn.sif.part mnist-dawn.sif
