#!/usr/bin/env bash
# Builds the installation climate-lumi-g with the container wrapper (tykky).
# Written by recipe 0.0.0 for 'climate' on lumi-g.
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
rm -rf climate-lumi-g.part climate-lumi-g.old
mkdir climate-lumi-g.part
conda-containerize new --mamba --prefix climate-lumi-g.part environment.yml </dev/null
[ -x climate-lumi-g.part/bin/python3 ] || fail "conda-containerize ended without an error and wrote no wrappers"
if [ -e climate-lumi-g ]; then mv climate-lumi-g climate-lumi-g.old; fi
mv climate-lumi-g.part climate-lumi-g
rm -rf climate-lumi-g.old
