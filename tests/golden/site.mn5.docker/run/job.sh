# What holds for a whole job; sourced by the job scripts beside it.
# shellcheck shell=bash
. ./engine.sh
# What modules of the host set up is for the Python of the host; what the user set is for the image too.
python_path=${PYTHONPATH-}
use_module load singularity
unset PYTHONHOME PYTHONPATH
if [ -n "$python_path" ]; then export PYTHONPATH="$python_path"; fi
set -u
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
export HF_DATASETS_OFFLINE="1"
export TRANSFORMERS_OFFLINE="1"
export WANDB_MODE="offline"
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    export NCCL_NET="IB"
    export NCCL_SOCKET_IFNAME="ib0,ib1,ib2,ib3"
    export NCCL_IB_HCA="mlx5_0,mlx5_1,mlx5_4,mlx5_5"
fi
