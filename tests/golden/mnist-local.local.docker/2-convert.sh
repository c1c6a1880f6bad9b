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
zstd_if_possible
"$runtime" build --force "${pack_options[@]}" digits-local.sif.part docker-archive://digits-local.tar
put_in_place digits-local.sif.part digits-local.sif
