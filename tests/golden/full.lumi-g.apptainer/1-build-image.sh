#!/usr/bin/env bash
# Builds full-of-everything-lumi-g.sif with singularity.
# Written by recipe 0.0.0 for 'Full_of.everything' on lumi-g.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
use_module load LUMI
use_module load systools
set -u

pick_runtime singularity apptainer
need_proot
clear_binds
temporary_folder "/tmp/${USER}" "/tmp/${USER}"
one_time /appl/local/containers/cotainr-baseimages/lumi-multitorch-mpich-u24r64f21m43t29-20260225_144743.sif
packing default
dated full-of-everything-lumi-g.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" full-of-everything-lumi-g.sif.part "$definition"
settle full-of-everything-lumi-g.sif.part
audit_image full-of-everything-lumi-g.sif.part
put_in_place full-of-everything-lumi-g.sif.part full-of-everything-lumi-g.sif
