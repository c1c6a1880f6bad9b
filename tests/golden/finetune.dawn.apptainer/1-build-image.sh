#!/usr/bin/env bash
# Builds finetune-dawn.sif with apptainer.
# Written by recipe 0.0.0 for 'finetune' on dawn.
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
dated finetune-dawn.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" finetune-dawn.sif.part "$definition"
settle finetune-dawn.sif.part
put_in_place finetune-dawn.sif.part finetune-dawn.sif
