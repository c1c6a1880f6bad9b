#!/usr/bin/env bash
# Converts full-of-everything-mn5.tar to full-of-everything-mn5.sif.
# Written by recipe 0.0.0 for 'Full_of.everything' on mn5.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time full-of-everything-mn5.tar
packing default full-of-everything-mn5.tar
"$runtime" build --force "${pack_options[@]}" full-of-everything-mn5.sif.part docker-archive://full-of-everything-mn5.tar
settle full-of-everything-mn5.sif.part
audit_image full-of-everything-mn5.sif.part
put_in_place full-of-everything-mn5.sif.part full-of-everything-mn5.sif
