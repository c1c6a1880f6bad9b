#!/usr/bin/env bash
# One task of a job: run by the launcher, not by hand.
set -eu
. run/container.sh
. run/watch.sh
export RANK="${PMI_RANK}"
export WORLD_SIZE="${PMI_SIZE}"
export LOCAL_RANK="${MPI_LOCALRANKID}"
export RECIPE_LOCAL_RANK="${MPI_LOCALRANKID}"
export SLURM_PROCID="${PMI_RANK}"
export SLURM_NTASKS="${PMI_SIZE}"
export SLURM_LOCALID="${MPI_LOCALRANKID}"
if [ "${RECIPE_GPU_VISIBILITY:-}" = rank ]; then
    # The rank sees one device, number 0.
    . run/device.sh
    one_device ZE_AFFINITY_MASK "${ZE_AFFINITY_MASK:-}"
fi
# RECIPE_ONE_PROCESS: a workload of one process; the other tasks exit
if [ "${RECIPE_ONE_PROCESS:-no}" = yes ]; then
    if [ "$PMI_RANK" -ne 0 ]; then exit 0; fi
    unset RANK WORLD_SIZE LOCAL_RANK RECIPE_LOCAL_RANK
    watch_stop
    exec_image "$@"
fi
watch_stop
exec_image "$@"
