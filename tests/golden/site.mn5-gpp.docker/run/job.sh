# What holds for a whole job; sourced by the job scripts beside it.
# shellcheck shell=bash
. ./engine.sh
use_module load singularity
set -u
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT="6000"
export MASTER_ADDR MASTER_PORT
export HF_DATASETS_OFFLINE="1"
export TRANSFORMERS_OFFLINE="1"
export WANDB_MODE="offline"
