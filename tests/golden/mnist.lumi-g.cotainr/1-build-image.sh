#!/usr/bin/env bash
# Builds mnist-lumi-g.sif with cotainr.
# Written by recipe 0.0.0 for 'mnist' on lumi-g.
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
pick_runtime singularity apptainer
clear_binds
export CONDA_OVERRIDE_CUDA=  # the solver sees no NVIDIA GPU, not that of this machine
temporary_folder "/tmp/${USER}" "/tmp/${USER}"
rm -f mnist-lumi-g.sif.part.sif
own_caches
through_environment
export PYTHONNOUSERSITE=1
"$cotainr" build mnist-lumi-g.sif.part.sif \
  --base-image=/appl/local/containers/cotainr-baseimages/lumi-multitorch-mpich-u24r64f21m43t29-20260225_144743.sif \
  --conda-env=environment.yml --accept-licenses </dev/null
audit_image mnist-lumi-g.sif.part.sif
put_in_place mnist-lumi-g.sif.part.sif mnist-lumi-g.sif
