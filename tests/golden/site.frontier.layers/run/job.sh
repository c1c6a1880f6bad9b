# Settings of a whole job; sourced by the job scripts of this folder.
# shellcheck shell=bash
. ./engine.sh
# PYTHONPATH of host modules is for the host's Python; the user's own is for the image too.
python_path=${PYTHONPATH-}
use_module load olcf-container-tools
use_module load apptainer-enable-mpi
use_module load apptainer-enable-gpu
unset PYTHONHOME PYTHONPATH
if [ -n "$python_path" ]; then export PYTHONPATH="$python_path"; fi
set -u
unset SLURM_EXPORT_ENV
MASTER_ADDR=$(hostname -i | cut -d ' ' -f 1)
export MASTER_ADDR
default_proxy all_proxy socks://proxy.ccs.ornl.gov:3128/
default_proxy http_proxy http://proxy.ccs.ornl.gov:3128/
default_proxy https_proxy http://proxy.ccs.ornl.gov:3128/
default_proxy no_proxy 'localhost,127.0.0.0/8,*.ccs.ornl.gov'
export MIOPEN_USER_DB_PATH="/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
export MIOPEN_CUSTOM_CACHE_DIR="/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    export NCCL_SOCKET_IFNAME="hsn0,hsn1,hsn2,hsn3"
    export NCCL_CROSS_NIC="1"
    export NCCL_NET_GDR_LEVEL="PHB"
    export HSA_FORCE_FINE_GRAIN_PCIE="1"
    export FI_MR_CACHE_MONITOR="kdreg2"
    export FI_CXI_DISABLE_HOST_REGISTER="1"
    export FI_CXI_DEFAULT_CQ_SIZE="131072"
    export FI_CXI_DEFAULT_TX_SIZE="2048"
    export FI_CXI_RX_MATCH_MODE="hybrid"
    export FI_CXI_RDZV_PROTO="alt_read"
    export FI_CXI_RDZV_EAGER_SIZE="0"
    export FI_CXI_RDZV_THRESHOLD="0"
    export FI_CXI_RDZV_GET_MIN="0"
else
    export NCCL_NET="Socket"
fi
