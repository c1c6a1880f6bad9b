# Settings of a whole job; sourced by the job scripts of this folder.
# shellcheck shell=bash
. ./engine.sh
# PYTHONPATH of host modules is for the host's Python; the user's own is for the image too.
python_path=${PYTHONPATH-}
use_module purge
use_module load rhel9/default-dawn
use_module load intel-oneapi-ccl/2021.15.0
unset PYTHONHOME PYTHONPATH
if [ -n "$python_path" ]; then export PYTHONPATH="$python_path"; fi
set -u
unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
export CCL_ATL_TRANSPORT="ofi"
export CCL_ZE_IPC_EXCHANGE="sockets"
export CCL_TOPO_FABRIC_VERTEX_CONNECTION_CHECK="0"
export CCL_LOG_LEVEL="warn"
export CCL_PROCESS_LAUNCHER="hydra"
export CCL_ATL_SHM="0"
export CCL_MNIC_COUNT="1"
export CCL_MNIC="global"
export FI_PROVIDER="tcp"
export I_MPI_OFI_PROVIDER="tcp"
export SLURM_EXPORT_ENV="ALL"
export APPTAINERENV_LD_LIBRARY_PATH="/usr/lib64/libibverbs:/usr/lib64:/.singularity.d/libs"
