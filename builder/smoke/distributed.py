"""A workload over many ranks: this process is a launcher's rank or the parent of our own ranks."""

from __future__ import annotations

import os
import signal
import threading
from typing import Dict, Iterable

from . import hardware, ranks
from .exceptions import UsageError
from .options import WorkloadOptions
from .ranks import RankRun
from .run import END_SIGNALS, WorkloadRun


def main(options: WorkloadOptions) -> int:
    """Run as the options and the environment demand; raises UsageError if they are ambiguous."""
    if options.rendezvous is None and options.ranks is not None:
        from . import supervise

        ranks.check_own_ranks(os.environ)
        return supervise.Supervisor(options).supervise()
    alone = options.rendezvous is None and options.expect_ranks is None
    if options.workload == "startup" and alone:
        return WorkloadRun(options).perform(work)  # a start does not need the launcher's other ranks
    placement = ranks.read_placement(os.environ)
    if placement is None and options.workload == "probe":
        placement = ranks.Placement(0, 1, 0, "none")  # a probe of this machine only
    if placement is None:
        raise UsageError(
            "no launcher started this process (no RANK, PMI_RANK, SLURM_PROCID): start it by one or give --ranks"
        )
    run = RankRun(options, placement)
    if options.rendezvous is not None:
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)  # before any thread: it would not block them
        threading.Thread(target=_follow_parent, name="parent", daemon=True).start()
    return run.perform(work)


def work(run: WorkloadRun) -> None:
    """Run one rank's part; raises RunError."""
    if run.options.workload == "startup":
        from . import startup

        startup.work(run)
        return
    assert isinstance(run, RankRun)
    run.note(state="starting", affinity=sorted(os.sched_getaffinity(0)))
    if run.options.workload == "probe":
        run.note(variables=select_variables(name for name, _ in run.options.expect_variable))
        run.prepare_log()
    torch = hardware.load_torch()
    run.note(torch=hardware.describe_torch(torch))
    # pi uses CPUs on every machine
    wanted = "cpu" if run.options.workload == "pi" else run.options.device
    kind, index = hardware.choose_device(torch, wanted, run.placement.local_rank)
    run.note(device=hardware.describe_device(torch, kind, index))
    from . import rendezvous  # imports torch

    rendezvous.run_rank(run, hardware.select_device(torch, kind, index))


def _follow_parent() -> None:
    """Exit with the parent: its end of our standard input closes when it dies, even of SIGKILL."""
    while os.read(0, 64):
        pass
    os._exit(1)


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
