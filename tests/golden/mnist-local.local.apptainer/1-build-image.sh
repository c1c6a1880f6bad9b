#!/usr/bin/env bash
# Builds digits-local.sif with apptainer.
# Written by recipe 0.0.0 for 'digits' on local.
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
dated digits-local.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" digits-local.sif.part "$definition"
settle digits-local.sif.part
put_in_place digits-local.sif.part digits-local.sif
