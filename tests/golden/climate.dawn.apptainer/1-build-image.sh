#!/usr/bin/env bash
# Builds climate-dawn.sif with apptainer.
# Written by recipe 0.0.0 for 'climate' on dawn.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
login_for docker.io site
clear_binds
temporary_folder "/local/${USER}/tmp" "/local/${USER}/cache"
one_time docker://intel/deep-learning-essentials:2025.3.0-0-devel-rockylinux9
packing default
dated climate-dawn.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" climate-dawn.sif.part "$definition"
settle climate-dawn.sif.part
put_in_place climate-dawn.sif.part climate-dawn.sif
