# What holds for a whole job; sourced by the job scripts beside it.
# shellcheck shell=bash
. ./engine.sh
# What modules of the host set up is for the Python of the host; what the user set is for the image too.
python_path=${PYTHONPATH-}
unset PYTHONHOME PYTHONPATH
if [ -n "$python_path" ]; then export PYTHONPATH="$python_path"; fi
set -u
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
