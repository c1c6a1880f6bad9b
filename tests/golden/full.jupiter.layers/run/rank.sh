#!/usr/bin/env bash
# One task of a job: run by the launcher, not by hand.
set -eu
. run/container.sh
. run/watch.sh
export RANK="${SLURM_PROCID}"
export WORLD_SIZE="${SLURM_NTASKS}"
export LOCAL_RANK="${SLURM_LOCALID}"
export RECIPE_LOCAL_RANK="${SLURM_LOCALID}"
if [ "${RECIPE_GPU_VISIBILITY:-}" = rank ]; then
    # The rank sees one device, number 0.
    . run/device.sh
    one_device CUDA_VISIBLE_DEVICES "${CUDA_VISIBLE_DEVICES:-}"
fi
# RECIPE_ONE_PROCESS: a workload of one process; the other tasks exit
if [ "${RECIPE_ONE_PROCESS:-no}" = yes ]; then
    if [ "$SLURM_PROCID" -ne 0 ]; then exit 0; fi
    unset RANK WORLD_SIZE LOCAL_RANK RECIPE_LOCAL_RANK
    watch_stop
    exec_image "$@"
fi
watch_stop
exec_image "$@"
