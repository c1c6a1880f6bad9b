#!/usr/bin/env bash
# Converts plots-mn5.tar to plots-mn5.sif.
# Written by recipe 0.0.0 for 'plots' on mn5.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time plots-mn5.tar
packing default plots-mn5.tar
"$runtime" build --force "${pack_options[@]}" plots-mn5.sif.part docker-archive://plots-mn5.tar
settle plots-mn5.sif.part
put_in_place plots-mn5.sif.part plots-mn5.sif
