#!/usr/bin/env bash
# Converts full-of-everything-mn5-gpp.tar to full-of-everything-mn5-gpp.sif.
# Written by recipe 0.0.0 for 'Full_of.everything' on mn5-gpp.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
clear_binds
temporary_folder '' ''
one_time full-of-everything-mn5-gpp.tar
packing default full-of-everything-mn5-gpp.tar
"$runtime" build --force "${pack_options[@]}" full-of-everything-mn5-gpp.sif.part docker-archive://full-of-everything-mn5-gpp.tar
settle full-of-everything-mn5-gpp.sif.part
put_in_place full-of-everything-mn5-gpp.sif.part full-of-everything-mn5-gpp.sif
