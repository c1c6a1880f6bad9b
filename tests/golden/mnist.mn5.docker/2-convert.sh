#!/usr/bin/env bash
# Converts mnist-mn5.tar to mnist-mn5.sif.
# Written by recipe 0.0.0 for 'mnist' on mn5.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time mnist-mn5.tar
packing default mnist-mn5.tar
"$runtime" build --force "${pack_options[@]}" mnist-mn5.sif.part docker-archive://mnist-mn5.tar
settle mnist-mn5.sif.part
put_in_place mnist-mn5.sif.part mnist-mn5.sif
