# Settings of a whole job; sourced by the job scripts of this folder.
# shellcheck shell=bash
. ./engine.sh
# PYTHONPATH of host modules is for the host's Python; the user's own is for the image too.
python_path=${PYTHONPATH-}
unset PYTHONHOME PYTHONPATH
if [ -n "$python_path" ]; then export PYTHONPATH="$python_path"; fi
set -u
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
export MIOPEN_USER_DB_PATH="/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
export MIOPEN_USER_DB="/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
export MIOPEN_CUSTOM_CACHE_DIR="/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    export NCCL_SOCKET_IFNAME="hsn0,hsn1,hsn2,hsn3"
    export NCCL_NET_GDR_LEVEL="PHB"
    export CXI_FORK_SAFE="1"
    export CXI_FORK_SAFE_HP="1"
    export FI_CXI_DISABLE_CQ_HUGETLB="1"
fi
