#!/usr/bin/env bash
# Builds the installation mnist-lumi-c with the container wrapper (tykky).
# Written by recipe 0.0.0 for 'mnist' on lumi-c.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
use_module load LUMI
use_module load lumi-container-wrapper
set -u

command -v conda-containerize >/dev/null ||
    fail "conda-containerize is not installed, or its module is not loaded"
clear_binds
export CONDA_OVERRIDE_CUDA=  # the solver sees no NVIDIA GPU, not that of this machine
temporary_folder "/tmp/${USER}" "/tmp/${USER}"
export CW_BUILD_TMPDIR="$work"
own_caches
rm -rf mnist-lumi-c.part mnist-lumi-c.old
# RECIPE_UPDATE: an installation that gets what pip has to add, and the commands after the first RECIPE_RAN
if [ -n "${RECIPE_UPDATE:-}" ]; then
    cp -a -- "$RECIPE_UPDATE" mnist-lumi-c.part
    conda-containerize update --requirement requirements.txt mnist-lumi-c.part </dev/null
else
    mkdir mnist-lumi-c.part
    conda-containerize new --mamba --prefix mnist-lumi-c.part environment.yml </dev/null
fi
[ -x mnist-lumi-c.part/bin/python3 ] || fail "conda-containerize reported no error but wrote no wrappers"
mkdir -p mnist-lumi-c.part/share
cp installation.json mnist-lumi-c.part/share/
if [ -e mnist-lumi-c ]; then mv mnist-lumi-c mnist-lumi-c.old; fi
mv mnist-lumi-c.part mnist-lumi-c
rm -rf mnist-lumi-c.old
