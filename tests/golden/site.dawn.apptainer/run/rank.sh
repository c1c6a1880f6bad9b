#!/usr/bin/env bash
# One task of a job: run by the launcher, not by hand.
set -eu
. run/container.sh
. run/watch.sh
export RANK="${PMI_RANK}"
export WORLD_SIZE="${PMI_SIZE}"
export LOCAL_RANK="${MPI_LOCALRANKID}"
# RECIPE_ONE_PROCESS: a workload of one process; the other tasks exit
if [ "${RECIPE_ONE_PROCESS:-no}" = yes ]; then
    if [ "$PMI_RANK" -ne 0 ]; then exit 0; fi
    unset RANK WORLD_SIZE LOCAL_RANK
    watch_stop
    exec_image "$@"
fi
watch_stop
exec_image "$@"
