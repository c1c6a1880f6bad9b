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

# free_port: a port of the first node on which nothing listens, drawn by chance; ranks meet there
free_port() {
    local port
    for _ in {1..20}; do
        port=$((10000 + $(od -An -N2 -tu2 /dev/urandom) % 20000))
        # shellcheck disable=SC2016
        if ! timeout 2 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$MASTER_ADDR" "$port" 2>/dev/null; then
            printf '%s\n' "$port"
            return 0
        fi
    done
    fail "no free port was found on $MASTER_ADDR: name one by RECIPE_MASTER_PORT"
}

export HF_DATASETS_OFFLINE="1"
export TRANSFORMERS_OFFLINE="1"
export WANDB_MODE="offline"
