# What holds for a whole job; sourced by the job scripts beside it.
# shellcheck shell=bash
. ./engine.sh
set -u
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT="29500"
export MASTER_ADDR MASTER_PORT
