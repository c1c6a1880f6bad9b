#!/usr/bin/env bash
# Converts plots-mn5-gpp.tar to plots-mn5-gpp.sif.
# Written by recipe 0.0.0 for 'plots' on mn5-gpp.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time plots-mn5-gpp.tar
packing default plots-mn5-gpp.tar
"$runtime" build --force "${pack_options[@]}" plots-mn5-gpp.sif.part docker-archive://plots-mn5-gpp.tar
settle plots-mn5-gpp.sif.part
put_in_place plots-mn5-gpp.sif.part plots-mn5-gpp.sif
