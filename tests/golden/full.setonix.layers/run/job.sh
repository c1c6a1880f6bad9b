# Settings of a whole job; sourced by the job scripts of this folder.
# shellcheck shell=bash
. ./engine.sh
. run/settings.sh
read_settings run/site.env
keep_own PYTHONUNBUFFERED MPI4PY_LIBMPI MPICH_GPU_SUPPORT_ENABLED MIOPEN_USER_DB_PATH MIOPEN_CUSTOM_CACHE_DIR \
    NCCL_SOCKET_IFNAME HSA_FORCE_FINE_GRAIN_PCIE FI_CXI_DISABLE_CQ_HUGETLB
# PYTHONPATH of host modules is for the host's Python; the user's own is for the image too.
python_path=${PYTHONPATH-}
use_module load singularity/4.1.0-mpi-gpu
unset PYTHONHOME PYTHONPATH
if [ -n "$python_path" ]; then export PYTHONPATH="$python_path"; fi
set -u
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || fail "scontrol does not name the nodes of this job"
MASTER_ADDR=${hosts%%$'\n'*}
export MASTER_ADDR

# free_port: a random free port of the first node, for the rendezvous of the ranks
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

site_variable PYTHONUNBUFFERED "1"
site_variable MPI4PY_LIBMPI "libmpi.so.12:/opt/env/lib:"
site_variable MPICH_GPU_SUPPORT_ENABLED "1"
site_variable MIOPEN_USER_DB_PATH "/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
site_variable MIOPEN_CUSTOM_CACHE_DIR "/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    site_variable NCCL_SOCKET_IFNAME "hsn"
    site_variable HSA_FORCE_FINE_GRAIN_PCIE "1"
    site_variable FI_CXI_DISABLE_CQ_HUGETLB "1"
fi
RECIPE_GPU_VISIBILITY=${RECIPE_GPU_VISIBILITY:-rank}
case $RECIPE_GPU_VISIBILITY in
    node | rank) export RECIPE_GPU_VISIBILITY ;;
    *) fail "RECIPE_GPU_VISIBILITY is \"$RECIPE_GPU_VISIBILITY\": write node or rank" ;;
esac
