#!/usr/bin/env bash
# Converts climate-mn5.tar to climate-mn5.sif.
# Written by recipe 0.0.0 for 'climate' on mn5.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time climate-mn5.tar
packing default climate-mn5.tar
"$runtime" build --force "${pack_options[@]}" climate-mn5.sif.part docker-archive://climate-mn5.tar
settle climate-mn5.sif.part
put_in_place climate-mn5.sif.part climate-mn5.sif
