"""Select the variables of a rank that describe its job, and no others."""

from __future__ import annotations

import os
from typing import Dict, Iterable

# Results are published, and a variable may hold a secret: only these are recorded.
_KEPT = (
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY", "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID",
    "SLURM_LOCALID", "SLURM_NODEID", "SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "PMI_RANK", "PMI_SIZE",
    "OMPI_COMM_WORLD_RANK", "GLOO_SOCKET_IFNAME", "PYTHONNOUSERSITE", "HSA_FORCE_FINE_GRAIN_PCIE", "CXI_FORK_SAFE",
    "CXI_FORK_SAFE_HP",
)  # fmt: skip
_FAMILIES = ("NCCL_", "RCCL_", "CCL_", "FI_", "I_MPI_", "MIOPEN_", "OMP_", "KMP_", "GOMP_")
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")


def select_variables(wanted: Iterable[str] = ()) -> Dict[str, str]:
    """Select the variables that describe the job, and those named in ``wanted``."""
    names = {name for name in os.environ if name in _KEPT or name.startswith(_FAMILIES)}
    safe = {name for name in names if not any(word in name for word in _SECRET)}
    return {name: os.environ[name] for name in sorted(safe | set(wanted)) if name in os.environ}
