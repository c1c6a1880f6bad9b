#!/usr/bin/env bash
# Builds full-of-everything-local.sif with apptainer.
# Written by recipe 0.0.0 for 'Full_of.everything' on local.
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
dated full-of-everything-local.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" full-of-everything-local.sif.part "$definition"
settle full-of-everything-local.sif.part
put_in_place full-of-everything-local.sif.part full-of-everything-local.sif
