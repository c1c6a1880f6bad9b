#!/usr/bin/env bash
# Converts mnist-local.tar to mnist-local.sif.
# Written by recipe 0.0.0 for 'mnist' on local.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time mnist-local.tar
packing zstd mnist-local.tar
"$runtime" build --force "${pack_options[@]}" mnist-local.sif.part docker-archive://mnist-local.tar
settle mnist-local.sif.part
put_in_place mnist-local.sif.part mnist-local.sif
