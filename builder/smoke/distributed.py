"""A workload over many ranks: those of a launcher, or our own, which this process starts and supervises."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Dict, Iterable, List, Optional

from . import hardware, mpi_library, ranks, result_files
from .options import RunError, UsageError, WorkloadOptions
from .ranks import STATUS_LOST, RankRun
from .run import END_SIGNALS, STOP_SECONDS, WorkloadRun, find_first_line


def main(options: WorkloadOptions) -> int:
    """Run as the options and the environment demand; raises UsageError if they are ambiguous."""
    if options.rendezvous is None and options.ranks is not None:
        ranks.check_own_ranks(os.environ)
        return Supervisor(options).supervise()
    alone = options.rendezvous is None and options.expect_ranks is None
    if options.workload == "startup" and alone:
        return WorkloadRun(options).perform(work)  # a start does not need the launcher's other ranks
    placement = None if options.alone else ranks.read_placement(os.environ)
    if options.alone or (placement is None and options.workload == "probe"):
        placement = ranks.Placement(0, 1, 0, "none")  # of this machine only
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
    if run.options.workload == "mpi":
        check_world(run)
        return
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


def check_world(run: RankRun) -> None:
    """Exchange values with every rank through MPI and record what was received; raises RunError.

    Ranks whose MPI does not know the launcher are each a world of one rank: nothing fails, and the numbers show it.
    """
    run.note(state="starting MPI")
    try:
        mpi: Any = importlib.import_module("mpi4py.MPI")
    except Exception as fault:  # mpi4py raises RuntimeError for a missing library, ImportError for a wrong one
        raise RunError(f"mpi4py does not start: {find_first_line(fault)}") from None
    world = mpi.COMM_WORLD
    size, rank = world.Get_size(), world.Get_rank()
    run.note(state="exchanging values by MPI", mpi={"size": size, "rank": rank, **mpi_library.describe(mpi)})
    total = world.allreduce(run.placement.rank + 1)
    left = world.sendrecv(run.placement.rank, dest=(rank + 1) % size, source=(rank - 1) % size)
    hosts = sorted(set(world.allgather(run.record["host"])))
    run.note(mpi={**run.record["mpi"], "sum": total, "left": left, "hosts": hosts})
    run.print_progress(f"{size} ranks in MPI's world, {run.record['mpi']['version']}")
    records: List[Dict[str, Any]] = world.gather({**run.record, "finished": True}) or []
    run.note(state="ending MPI")
    world.barrier()  # UCX over TCP often hangs in the end of a rank that the other one did not wait for
    mpi_library.end_mpi(mpi, run.record["mpi"]["library"])  # within our limit: over some networks it hangs
    if run.leads and rank == 0 and len(records) == run.placement.world:
        run.gathered = records


_POLL = 0.05  # seconds
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_BLAME = 2.0  # seconds to wait for the rank at fault after another one lost it


class Supervisor(WorkloadRun):
    """The parent of our own ranks; only they import torch."""

    def __init__(self, options: WorkloadOptions) -> None:
        super().__init__(options)
        self.world = options.ranks or 1
        self.children: List[subprocess.Popen[bytes]] = []
        self.caught: Optional[int] = None

    def supervise(self) -> int:
        """Run the ranks to their end and return the exit status; raises UsageError if no result can be written."""
        self.write_initial()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._catch)
        # next to the result: a writable folder on the host of all ranks
        where = os.path.dirname(os.path.abspath(self.options.result)) if self.options.result else None
        try:
            folder = tempfile.mkdtemp(prefix=".smoke-", dir=where)
        except OSError as fault:
            raise UsageError(f"the ranks have no folder to meet in: {fault.strerror or fault}; give --result") from None
        base = self.options.result or os.path.join(folder, "result")
        try:
            self._remove_old_records(base)
            error = self._run(folder, base)
        finally:
            self._end_children()
            records = self._records(base)
            shutil.rmtree(folder, ignore_errors=True)
        result_files.assemble(self.result, records)
        return self.end(error, None if self.caught is None else 128 + self.caught)

    def _run(self, folder: str, base: str) -> Optional[str]:
        self.print_progress(f"starting {self.world} ranks")
        for rank in range(self.world):
            self.children.append(self._start(rank, folder, base))
        while self.caught is None and self.count_seconds_left() > 0:
            codes = [child.poll() for child in self.children]
            if any(codes):
                self._wait_for_blame()
                return self._blame(base)
            if None not in codes:
                return None
            time.sleep(_POLL)
        return self._cut_short(base)

    def _cut_short(self, base: str) -> str:
        """Describe the ranks when the limit or a signal came; with a snapshot they first stop in good order."""
        if self.caught is not None and self.options.snapshot is not None:
            for child in self.children:
                child.send_signal(self.caught)
            until = time.monotonic() + STOP_SECONDS + _POLL
            while time.monotonic() < until and any(child.poll() is None for child in self.children):
                time.sleep(_POLL)
            for entry in result_files.read_records(base, self.world):
                if entry.get("stopped"):
                    return str(entry["error"])
        ending = "at its limit of {:g} s".format(self.options.timeout)
        if self.caught is not None:
            ending = "by " + signal.Signals(self.caught).name
        running = [rank for rank, child in enumerate(self.children) if child.poll() is None]
        waiting = result_files.describe_unfinished(result_files.read_records(base, self.world), running)
        return f"ended {ending}" + (f": {waiting}" if waiting else "")

    def _start(self, rank: int, folder: str, base: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-B", os.path.dirname(os.path.abspath(__file__)), *self.options.words]
        command += [
            f"--rendezvous={os.path.join(folder, 'store')}",  # with it --ranks has no effect
            f"--result={base}",
            # the parent's limit comes first, and its message says more
            f"--timeout={max(1.0, self.count_seconds_left()) + _GRACE}",
        ]
        # a new session: Ctrl-C reaches only the parent, which ends its ranks in order
        return subprocess.Popen(command, env=self._environment(rank), stdin=subprocess.PIPE, start_new_session=True)

    def _environment(self, rank: int) -> Dict[str, str]:
        environment = dict(os.environ)
        environment.pop("RECIPE_LOCAL_RANK", None)  # of the process that starts them
        environment.update(RANK=str(rank), WORLD_SIZE=str(self.world), LOCAL_RANK=str(rank))
        environment["GLOO_SOCKET_IFNAME"] = "lo"  # all ranks are on this host
        cores = max(1, len(os.sched_getaffinity(0)) // self.world)
        environment.setdefault("OMP_NUM_THREADS", str(cores))
        return environment

    def _wait_for_blame(self) -> None:
        """Wait a moment while all dead ranks died because they lost another one."""
        until = time.monotonic() + _BLAME
        while time.monotonic() < until:
            codes = [child.poll() for child in self.children]
            if any(code not in (None, 0, STATUS_LOST) for code in codes) or None not in codes:
                return
            time.sleep(_POLL)

    def _blame(self, base: str) -> str:
        """Name the rank that died: one killed by a signal, then one that failed, then one that lost others."""
        codes = {rank: child.poll() for rank, child in enumerate(self.children)}
        records = {entry["rank"]: entry for entry in result_files.read_records(base, self.world)}
        for rank, code in codes.items():
            if code is not None and code < 0:
                state = records.get(rank, {}).get("state", "starting")
                return f"rank {rank} was {result_files.describe_exit(code)} while {state}"
        failed = [rank for rank, code in codes.items() if code not in (None, 0, STATUS_LOST)]
        for rank in failed:
            text = (
                records.get(rank, {}).get("error")
                or f"it left no reason ({result_files.describe_exit(codes[rank] or 0)})"
            )
            return f"rank {rank}: {text}"
        return result_files.diagnose(list(records.values()), self.world) or "a rank failed and left no reason"

    def _end_children(self) -> None:
        """End the remaining ranks: SIGTERM, then SIGKILL, which also ends a stopped process."""
        alive = [child for child in self.children if child.poll() is None]
        for child in alive:
            child.terminate()
        until = time.monotonic() + _GRACE
        for child in alive:
            try:
                child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _records(self, base: str) -> List[Dict[str, Any]]:
        """Read the ranks' records and add how each process ended; a rank without a record gets a row as well."""
        found = {entry["rank"]: entry for entry in result_files.read_records(base, self.world)}
        records = []
        for rank, child in enumerate(self.children):
            entry = found.get(rank, {"rank": rank, "state": "starting", "finished": False, "seconds": {}})
            entry["ended"] = result_files.describe_exit(child.returncode)
            records.append(entry)
        return records

    def _remove_old_records(self, base: str) -> None:
        for path in result_files.find_records(base):
            os.remove(path)

    def _catch(self, number: int, _frame: Any) -> None:
        self.caught = number
