#!/usr/bin/env bash
# Converts plots-local.tar to plots-local.sif.
# Written by recipe 0.0.0 for 'plots' on local.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time plots-local.tar
packing zstd plots-local.tar
"$runtime" build --force "${pack_options[@]}" plots-local.sif.part docker-archive://plots-local.tar
settle plots-local.sif.part
put_in_place plots-local.sif.part plots-local.sif
