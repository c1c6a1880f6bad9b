#!/usr/bin/env bash
# Converts climate-local.tar to climate-local.sif.
# Written by recipe 0.0.0 for 'climate' on local.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time climate-local.tar
packing zstd climate-local.tar
"$runtime" build --force "${pack_options[@]}" climate-local.sif.part docker-archive://climate-local.tar
settle climate-local.sif.part
put_in_place climate-local.sif.part climate-local.sif
