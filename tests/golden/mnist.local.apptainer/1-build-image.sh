#!/usr/bin/env bash
# Builds mnist-local.sif with apptainer.
# Written by recipe 0.0.0 for 'mnist' on local.
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
dated mnist-local.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" mnist-local.sif.part "$definition"
settle mnist-local.sif.part
put_in_place mnist-local.sif.part mnist-local.sif
