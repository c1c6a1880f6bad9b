# What holds for a whole job; sourced by the job scripts beside it.
# shellcheck shell=bash
. ./engine.sh
set -u
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT="29500"
export MASTER_ADDR MASTER_PORT
export MIOPEN_USER_DB_PATH="/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
export MIOPEN_USER_DB="/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
export MIOPEN_CUSTOM_CACHE_DIR="/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    export NCCL_SOCKET_IFNAME="hsn0,hsn1,hsn2,hsn3"
    export NCCL_NET_GDR_LEVEL="PHB"
fi
