#!/usr/bin/env bash
# Converts digits-mn5.tar to digits-mn5.sif.
# Written by recipe 0.0.0 for 'digits' on mn5.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time digits-mn5.tar
packing default digits-mn5.tar
"$runtime" build --force "${pack_options[@]}" digits-mn5.sif.part docker-archive://digits-mn5.tar
settle digits-mn5.sif.part
put_in_place digits-mn5.sif.part digits-mn5.sif
