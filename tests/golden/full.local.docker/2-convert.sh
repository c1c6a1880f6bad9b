#!/usr/bin/env bash
# Converts full-of-everything-local.tar to full-of-everything-local.sif.
# Written by recipe 0.0.0 for 'Full_of.everything' on local.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time full-of-everything-local.tar
packing zstd full-of-everything-local.tar
"$runtime" build --force "${pack_options[@]}" full-of-everything-local.sif.part docker-archive://full-of-everything-local.tar
settle full-of-everything-local.sif.part
put_in_place full-of-everything-local.sif.part full-of-everything-local.sif
