#!/usr/bin/env bash
# Converts finetune-mn5.tar to finetune-mn5.sif.
# Written by recipe 0.0.0 for 'finetune' on mn5.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time finetune-mn5.tar
packing default finetune-mn5.tar
"$runtime" build --force "${pack_options[@]}" finetune-mn5.sif.part docker-archive://finetune-mn5.tar
settle finetune-mn5.sif.part
put_in_place finetune-mn5.sif.part finetune-mn5.sif
