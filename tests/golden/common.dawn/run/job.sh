# Settings of a whole job; sourced by the job scripts of this folder.
# shellcheck shell=bash
. ./engine.sh
. run/settings.sh
read_settings run/site.env
keep_own PYTHONUNBUFFERED CCL_ATL_TRANSPORT CCL_ZE_IPC_EXCHANGE CCL_TOPO_FABRIC_VERTEX_CONNECTION_CHECK \
    CCL_LOG_LEVEL CCL_PROCESS_LAUNCHER CCL_ATL_SHM CCL_MNIC_COUNT CCL_MNIC FI_PROVIDER I_MPI_OFI_PROVIDER \
    SLURM_EXPORT_ENV APPTAINERENV_LD_LIBRARY_PATH
# PYTHONPATH of host modules is for the host's Python; the user's own is for the image too.
python_path=${PYTHONPATH-}
use_module purge
use_module load rhel9/default-dawn
use_module load intel-oneapi-ccl/2021.15.0
unset PYTHONHOME PYTHONPATH
if [ -n "$python_path" ]; then export PYTHONPATH="$python_path"; fi
set -u
unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || fail "scontrol does not name the nodes of this job"
MASTER_ADDR=${hosts%%$'\n'*}
export MASTER_ADDR
site_variable PYTHONUNBUFFERED "1"
site_variable CCL_ATL_TRANSPORT "ofi"
site_variable CCL_ZE_IPC_EXCHANGE "sockets"
site_variable CCL_TOPO_FABRIC_VERTEX_CONNECTION_CHECK "0"
site_variable CCL_LOG_LEVEL "warn"
site_variable CCL_PROCESS_LAUNCHER "hydra"
site_variable CCL_ATL_SHM "0"
site_variable CCL_MNIC_COUNT "1"
site_variable CCL_MNIC "global"
site_variable FI_PROVIDER "tcp"
site_variable I_MPI_OFI_PROVIDER "tcp"
site_variable SLURM_EXPORT_ENV "ALL"
site_variable APPTAINERENV_LD_LIBRARY_PATH "/usr/lib64/libibverbs:/usr/lib64:/.singularity.d/libs"
RECIPE_GPU_VISIBILITY=${RECIPE_GPU_VISIBILITY:-node}
case $RECIPE_GPU_VISIBILITY in
    node | rank) export RECIPE_GPU_VISIBILITY ;;
    *) fail "RECIPE_GPU_VISIBILITY is \"$RECIPE_GPU_VISIBILITY\": write node or rank" ;;
esac
