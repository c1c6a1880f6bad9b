#!/usr/bin/env bash
# Builds plots-frontier.sif with apptainer.
# Written by recipe 0.0.0 for 'plots' on frontier.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
default_proxy all_proxy socks://proxy.ccs.ornl.gov:3128/
default_proxy http_proxy http://proxy.ccs.ornl.gov:3128/
default_proxy https_proxy http://proxy.ccs.ornl.gov:3128/
default_proxy no_proxy 'localhost,127.0.0.0/8,*.ccs.ornl.gov'
login_for docker.io site
clear_binds
temporary_folder '' "/tmp/${USER}/apptainer"
one_time docker://docker.io/rocm/pytorch:rocm6.4.2_ubuntu24.04_py3.12_pytorch_release_2.6.0
packing default
dated plots-frontier.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" plots-frontier.sif.part "$definition"
settle plots-frontier.sif.part
put_in_place plots-frontier.sif.part plots-frontier.sif
