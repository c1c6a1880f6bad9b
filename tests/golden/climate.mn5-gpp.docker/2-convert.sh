#!/usr/bin/env bash
# Converts climate-mn5-gpp.tar to climate-mn5-gpp.sif.
# Written by recipe 0.0.0 for 'climate' on mn5-gpp.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time climate-mn5-gpp.tar
packing default climate-mn5-gpp.tar
"$runtime" build --force "${pack_options[@]}" climate-mn5-gpp.sif.part docker-archive://climate-mn5-gpp.tar
settle climate-mn5-gpp.sif.part
put_in_place climate-mn5-gpp.sif.part climate-mn5-gpp.sif
