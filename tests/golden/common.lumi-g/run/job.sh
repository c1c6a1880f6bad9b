# Settings of a whole job; sourced by the job scripts of this folder.
# shellcheck shell=bash
. ./engine.sh
. run/settings.sh
read_settings run/site.env
keep_own PYTHONUNBUFFERED SLURM_MPI_TYPE MIOPEN_USER_DB_PATH MIOPEN_USER_DB MIOPEN_CUSTOM_CACHE_DIR \
    NCCL_SOCKET_IFNAME NCCL_NET_GDR_LEVEL CXI_FORK_SAFE CXI_FORK_SAFE_HP FI_CXI_DISABLE_CQ_HUGETLB
# PYTHONPATH of host modules is for the host's Python; the user's own is for the image too.
python_path=${PYTHONPATH-}
unset PYTHONHOME PYTHONPATH
if [ -n "$python_path" ]; then export PYTHONPATH="$python_path"; fi
set -u
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || fail "scontrol does not name the nodes of this job"
MASTER_ADDR=${hosts%%$'\n'*}
export MASTER_ADDR
site_variable PYTHONUNBUFFERED "1"
site_variable SLURM_MPI_TYPE "pmi2"
site_variable MIOPEN_USER_DB_PATH "/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
site_variable MIOPEN_USER_DB "/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
site_variable MIOPEN_CUSTOM_CACHE_DIR "/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    site_variable NCCL_SOCKET_IFNAME "hsn0,hsn1,hsn2,hsn3"
    site_variable NCCL_NET_GDR_LEVEL "PHB"
    site_variable CXI_FORK_SAFE "1"
    site_variable CXI_FORK_SAFE_HP "1"
    site_variable FI_CXI_DISABLE_CQ_HUGETLB "1"
fi
RECIPE_GPU_VISIBILITY=${RECIPE_GPU_VISIBILITY:-node}
case $RECIPE_GPU_VISIBILITY in
    node | rank) export RECIPE_GPU_VISIBILITY ;;
    *) fail "RECIPE_GPU_VISIBILITY is \"$RECIPE_GPU_VISIBILITY\": write node or rank" ;;
esac
