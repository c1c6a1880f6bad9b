#!/usr/bin/env bash
# One task of a job: run by the launcher, not by hand.
set -eu
. run/container.sh
. run/watch.sh
# RECIPE_ONE_PROCESS: a workload of one process; the other tasks exit
if [ "${RECIPE_ONE_PROCESS:-no}" = yes ]; then
    if [ "$SLURM_PROCID" -ne 0 ]; then exit 0; fi
    unset RANK WORLD_SIZE LOCAL_RANK RECIPE_LOCAL_RANK
    watch_stop
    exec_image "$@"
fi
watch_stop
# A command that is torchrun starts the ranks of its node itself.
case "${1##*/} ${2:-} ${3:-}" in
    "torchrun "* | "python"*" -m torch.distributed.run") exec_image "$@" ;;
esac
if [ "${RECIPE_GPU_VISIBILITY:-}" = rank ]; then
    # shellcheck disable=SC2016
    set -- sh -c '. "$0" && one_device CUDA_VISIBLE_DEVICES "${CUDA_VISIBLE_DEVICES:-}" && exec "$@"' "$PWD/run/device.sh" "$@"
fi
# RECIPE_RANKS: ranks per node; PET_RDZV_*: address and id of the rendezvous; set by the job script
exec_image python3 -m torch.distributed.run \
    --nproc_per_node "$RECIPE_RANKS" --nnodes "$SLURM_JOB_NUM_NODES" --node_rank "$SLURM_PROCID" \
    --rdzv_backend c10d --max_restarts 0 --tee 3 --no-python "$@"
