#!/usr/bin/env bash
# Converts digits-local.tar to digits-local.sif.
# Written by recipe 0.0.0 for 'digits' on local.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time digits-local.tar
packing zstd digits-local.tar
"$runtime" build --force "${pack_options[@]}" digits-local.sif.part docker-archive://digits-local.tar
settle digits-local.sif.part
put_in_place digits-local.sif.part digits-local.sif
