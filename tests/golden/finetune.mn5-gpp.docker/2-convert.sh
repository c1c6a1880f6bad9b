#!/usr/bin/env bash
# Converts finetune-mn5-gpp.tar to finetune-mn5-gpp.sif.
# Written by recipe 0.0.0 for 'finetune' on mn5-gpp.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time finetune-mn5-gpp.tar
packing default finetune-mn5-gpp.tar
"$runtime" build --force "${pack_options[@]}" finetune-mn5-gpp.sif.part docker-archive://finetune-mn5-gpp.tar
settle finetune-mn5-gpp.sif.part
put_in_place finetune-mn5-gpp.sif.part finetune-mn5-gpp.sif
