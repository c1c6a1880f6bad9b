# Settings of a whole job; sourced by the job scripts of this folder.
# shellcheck shell=bash
. ./engine.sh
. run/settings.sh
read_settings run/site.env
keep_own PYTHONUNBUFFERED NCCL_NET_PLUGIN MPI4PY_LIBMPI MIOPEN_USER_DB_PATH MIOPEN_CUSTOM_CACHE_DIR NCCL_NET \
    NCCL_SOCKET_IFNAME NCCL_CROSS_NIC NCCL_NET_GDR_LEVEL HSA_FORCE_FINE_GRAIN_PCIE FI_MR_CACHE_MONITOR \
    FI_CXI_DISABLE_HOST_REGISTER FI_CXI_DEFAULT_CQ_SIZE FI_CXI_DEFAULT_TX_SIZE FI_CXI_RX_MATCH_MODE \
    FI_CXI_RDZV_PROTO FI_CXI_RDZV_EAGER_SIZE FI_CXI_RDZV_THRESHOLD FI_CXI_RDZV_GET_MIN
# PYTHONPATH of host modules is for the host's Python; the user's own is for the image too.
python_path=${PYTHONPATH-}
use_module load olcf-container-tools
use_module load apptainer-enable-mpi
use_module load apptainer-enable-gpu
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    use_module load rocm
    use_module load rccl-net-plugin
    find_plugin
fi
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
site_variable PYTHONUNBUFFERED "1"
site_variable MPI4PY_LIBMPI "libmpi.so.12:/opt/env/lib:"
site_variable MIOPEN_USER_DB_PATH "/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
site_variable MIOPEN_CUSTOM_CACHE_DIR "/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}"
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    site_variable NCCL_NET "OFI"
    site_variable NCCL_SOCKET_IFNAME "hsn0,hsn1,hsn2,hsn3"
    site_variable NCCL_CROSS_NIC "1"
    site_variable NCCL_NET_GDR_LEVEL "PHB"
    site_variable HSA_FORCE_FINE_GRAIN_PCIE "1"
    site_variable FI_MR_CACHE_MONITOR "kdreg2"
    site_variable FI_CXI_DISABLE_HOST_REGISTER "1"
    site_variable FI_CXI_DEFAULT_CQ_SIZE "131072"
    site_variable FI_CXI_DEFAULT_TX_SIZE "2048"
    site_variable FI_CXI_RX_MATCH_MODE "hybrid"
    site_variable FI_CXI_RDZV_PROTO "alt_read"
    site_variable FI_CXI_RDZV_EAGER_SIZE "0"
    site_variable FI_CXI_RDZV_THRESHOLD "0"
    site_variable FI_CXI_RDZV_GET_MIN "0"
else
    site_variable NCCL_NET "Socket"
fi
RECIPE_GPU_VISIBILITY=${RECIPE_GPU_VISIBILITY:-rank}
case $RECIPE_GPU_VISIBILITY in
    node | rank) export RECIPE_GPU_VISIBILITY ;;
    *) fail "RECIPE_GPU_VISIBILITY is \"$RECIPE_GPU_VISIBILITY\": write node or rank" ;;
esac
