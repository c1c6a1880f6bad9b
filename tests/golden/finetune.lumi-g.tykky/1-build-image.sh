#!/usr/bin/env bash
# Builds the installation finetune-lumi-g with the container wrapper (tykky).
# Written by recipe 0.0.0 for 'finetune' on lumi-g.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
use_module load LUMI
use_module load lumi-container-wrapper
set -u

command -v conda-containerize >/dev/null || fail "there is no conda-containerize: is its module loaded?"
clear_binds
export CONDA_OVERRIDE_CUDA=  # the solver sees no NVIDIA GPU, whatever this machine has
temporary_folder "/tmp/${USER}" "/tmp/${USER}"
export CW_BUILD_TMPDIR="$work"
own_caches
rm -rf finetune-lumi-g.part finetune-lumi-g.old
mkdir finetune-lumi-g.part
conda-containerize new --mamba --prefix finetune-lumi-g.part environment.yml </dev/null
[ -x finetune-lumi-g.part/bin/python3 ] || fail "conda-containerize ended without an error and wrote no wrappers"
if [ -e finetune-lumi-g ]; then mv finetune-lumi-g finetune-lumi-g.old; fi
mv finetune-lumi-g.part finetune-lumi-g
rm -rf finetune-lumi-g.old
