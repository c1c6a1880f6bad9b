#!/usr/bin/env bash
# Builds mnist-lumi-c.sif with cotainr.
# Written by recipe 0.0.0 for 'mnist' on lumi-c.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
use_module load CrayEnv
use_module load cotainr
set -u

cotainr=$(command -v cotainr) || fail "cotainr is not installed, or its module is not loaded"
# cotainr installs Miniforge: its licence is yours to accept, once.
if [ "${RECIPE_ACCEPT_LICENSES:-no}" != yes ]; then
    fail "licence of Miniforge is not accepted: give --accept-licenses, or set RECIPE_ACCEPT_LICENSES=yes"
fi
login_for docker.io site
pick_runtime singularity apptainer
clear_binds
export CONDA_OVERRIDE_CUDA=  # the solver sees no NVIDIA GPU, not that of this machine
temporary_folder "/tmp/${USER}" "/tmp/${USER}"
rm -f mnist-lumi-c.sif.part.sif
own_caches
through_environment
export PYTHONNOUSERSITE=1
"$cotainr" build mnist-lumi-c.sif.part.sif \
  --base-image=docker://ubuntu:24.04 \
  --conda-env=environment.yml --accept-licenses </dev/null
put_in_place mnist-lumi-c.sif.part.sif mnist-lumi-c.sif
