#!/usr/bin/env bash
# Builds plots-local.sif with apptainer.
# Written by recipe 0.0.0 for 'plots' on local.
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
dated plots-local.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" plots-local.sif.part "$definition"
settle plots-local.sif.part
put_in_place plots-local.sif.part plots-local.sif
