#!/usr/bin/env bash
# Builds full-of-everything-dawn.sif with apptainer.
# Written by recipe 0.0.0 for 'Full_of.everything' on dawn.
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
dated full-of-everything-dawn.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" full-of-everything-dawn.sif.part "$definition"
settle full-of-everything-dawn.sif.part
audit_image full-of-everything-dawn.sif.part
put_in_place full-of-everything-dawn.sif.part full-of-everything-dawn.sif
