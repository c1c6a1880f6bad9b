#!/usr/bin/env bash
# Builds the installation climate-lumi-c with the container wrapper (tykky).
# Written by recipe 0.0.0 for 'climate' on lumi-c.
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
rm -rf climate-lumi-c.part climate-lumi-c.old
mkdir climate-lumi-c.part
conda-containerize new --mamba --prefix climate-lumi-c.part environment.yml </dev/null
[ -x climate-lumi-c.part/bin/python3 ] || fail "conda-containerize ended without an error and wrote no wrappers"
if [ -e climate-lumi-c ]; then mv climate-lumi-c climate-lumi-c.old; fi
mv climate-lumi-c.part climate-lumi-c
rm -rf climate-lumi-c.old
