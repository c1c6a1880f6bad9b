#!/usr/bin/env bash
# One task of a job: run by the launcher, not by hand.
set -eu
. run/container.sh
export RANK="${PMI_RANK}"
export WORLD_SIZE="${PMI_SIZE}"
export LOCAL_RANK="${MPI_LOCALRANKID}"
in_image "$@"
