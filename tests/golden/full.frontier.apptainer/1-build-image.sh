#!/usr/bin/env bash
# Builds full-of-everything-frontier.sif with apptainer.
# Written by recipe 0.0.0 for 'Full_of.everything' on frontier.
set -eo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. ./engine.sh
set -u

pick_runtime apptainer singularity
default_proxy all_proxy socks://proxy.ccs.ornl.gov:3128/
default_proxy http_proxy http://proxy.ccs.ornl.gov:3128/
default_proxy https_proxy http://proxy.ccs.ornl.gov:3128/
default_proxy no_proxy 'localhost,127.0.0.0/8,*.ccs.ornl.gov'
login_for savannah.ornl.gov site
clear_binds
temporary_folder '' "/tmp/${USER}/apptainer"
one_time docker://savannah.ornl.gov/olcf-container-images/cpe:25.09_gnu_ubuntu
packing default
dated full-of-everything-frontier.def
inside_build
offer_wheels
"$runtime" build --force "${pack_options[@]}" "${build_binds[@]}" full-of-everything-frontier.sif.part "$definition"
settle full-of-everything-frontier.sif.part
audit_image full-of-everything-frontier.sif.part
put_in_place full-of-everything-frontier.sif.part full-of-everything-frontier.sif
