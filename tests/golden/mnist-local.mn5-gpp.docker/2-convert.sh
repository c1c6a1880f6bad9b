#!/usr/bin/env bash
# Converts digits-mn5-gpp.tar to digits-mn5-gpp.sif.
# Written by recipe 0.0.0 for 'digits' on mn5-gpp.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time digits-mn5-gpp.tar
packing default digits-mn5-gpp.tar
"$runtime" build --force "${pack_options[@]}" digits-mn5-gpp.sif.part docker-archive://digits-mn5-gpp.tar
settle digits-mn5-gpp.sif.part
put_in_place digits-mn5-gpp.sif.part digits-mn5-gpp.sif
