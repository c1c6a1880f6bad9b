#!/usr/bin/env bash
# Converts mnist-mn5-gpp.tar to mnist-mn5-gpp.sif.
# Written by recipe 0.0.0 for 'mnist' on mn5-gpp.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time mnist-mn5-gpp.tar
packing default mnist-mn5-gpp.tar
"$runtime" build --force "${pack_options[@]}" mnist-mn5-gpp.sif.part docker-archive://mnist-mn5-gpp.tar
settle mnist-mn5-gpp.sif.part
put_in_place mnist-mn5-gpp.sif.part mnist-mn5-gpp.sif
