#!/usr/bin/env bash
# Builds finetune-frontier.sif with apptainer.
# Written by recipe 0.0.0 for 'finetune' on frontier.
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
dated finetune-frontier.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" finetune-frontier.sif.part "$definition"
settle finetune-frontier.sif.part
put_in_place finetune-frontier.sif.part finetune-frontier.sif
