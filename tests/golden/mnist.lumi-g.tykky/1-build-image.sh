#!/usr/bin/env bash
# Builds the installation mnist-lumi-g with the container wrapper (tykky).
# Written by recipe 0.0.0 for 'mnist' on lumi-g.
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
rm -rf mnist-lumi-g.part mnist-lumi-g.old
# RECIPE_UPDATE: an installation that gets what pip has to add, and the commands after the first RECIPE_RAN
if [ -n "${RECIPE_UPDATE:-}" ]; then
    cp -a -- "$RECIPE_UPDATE" mnist-lumi-g.part
    conda-containerize update --requirement requirements.txt mnist-lumi-g.part </dev/null
else
    mkdir mnist-lumi-g.part
    conda-containerize new --mamba --prefix mnist-lumi-g.part environment.yml </dev/null
fi
[ -x mnist-lumi-g.part/bin/python3 ] || fail "conda-containerize reported no error but wrote no wrappers"
mkdir -p mnist-lumi-g.part/share
cp installation.json mnist-lumi-g.part/share/
audit_image mnist-lumi-g.part
if [ -e mnist-lumi-g ]; then mv mnist-lumi-g mnist-lumi-g.old; fi
mv mnist-lumi-g.part mnist-lumi-g
rm -rf mnist-lumi-g.old
