#!/usr/bin/env bash
# Converts finetune-local.tar to finetune-local.sif.
# Written by recipe 0.0.0 for 'finetune' on local.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time finetune-local.tar
packing zstd finetune-local.tar
"$runtime" build --force "${pack_options[@]}" finetune-local.sif.part docker-archive://finetune-local.tar
settle finetune-local.sif.part
put_in_place finetune-local.sif.part finetune-local.sif
