#!/usr/bin/env bash
# Builds finetune-local.sif with apptainer.
# Written by recipe 0.0.0 for 'finetune' on local.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
login_for docker.io site
clear_binds
temporary_folder '' ''
one_time docker://docker.io/library/python:3.12-slim-bookworm
packing zstd
dated finetune-local.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" finetune-local.sif.part "$definition"
settle finetune-local.sif.part
put_in_place finetune-local.sif.part finetune-local.sif
