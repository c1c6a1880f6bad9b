"""The rendezvous of the ranks: meet at a store, connect by a backend, report and leave; imports torch.

Records are exchanged through the store, because all_gather_object needs numpy in most versions of torch.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from datetime import timedelta
from importlib import import_module
from typing import Any, Iterable, List

import torch
import torch.distributed as dist

from .options import RunError, StoppedError
from .ranks import RankRun
from .run import find_first_line

_PATIENCE = 30.0  # seconds after our limit at which torch times out; our message is better


def join(run: RankRun) -> None:
    """Meet at the store and wait for every rank, leaving time to name absent ones; raises RunError."""
    placement = run.placement
    run.note(state="joining")
    store = run.store = _open_store(run)
    store.set(f"joined/{placement.rank}", socket.gethostname())
    if run.leads:
        absent = _find_absent(run, store)
        store.set("absent", json.dumps(absent))
    else:
        store.wait(["absent"], timedelta(seconds=_count_seconds_left(run)))
        absent = json.loads(store.get("absent"))
    if absent:
        run.record.update(lost=True, absent=absent)
        _leave(run, [rank for rank in range(placement.world) if rank not in absent], 5.0)
        names = ", ".join(str(rank) for rank in absent[:20]) + (", ..." if len(absent) > 20 else "")
        raise RunError(f"{len(absent)} of {placement.world} ranks never joined: rank {names}")


def connect(run: RankRun, kind: str) -> str:
    """Initialize the backend of this kind of device; returns its name, raises RunError."""
    backend = choose_backend(kind)
    run.note(backend=backend)
    limit = timedelta(seconds=_count_seconds_left(run) + _PATIENCE)
    placement = run.placement
    dist.init_process_group(backend, store=run.store, rank=placement.rank, world_size=placement.world, timeout=limit)
    run.print_progress(f"{placement.world} ranks joined, {backend} on {run.record['device']['name']}")
    return backend


def report(run: RankRun) -> None:
    """Send every rank's record to rank 0."""
    placement, store = run.placement, run.store
    run.note(state="reporting")
    run.record["finished"] = True
    store.set(f"record/{placement.rank}", json.dumps(run.record))
    if run.leads:
        gathered = [json.loads(store.get(f"record/{rank}")) for rank in range(placement.world)]
        store.set("gathered", "yes")
        run.gathered = gathered
    else:
        store.wait(["gathered"], timedelta(seconds=_count_seconds_left(run)))
    _leave(run, range(placement.world), _count_seconds_left(run))


def reduce_max(values: List[float], device: Any) -> List[float]:
    """Return the maximum of each value over all ranks."""
    total = torch.tensor(values, dtype=torch.float32, device=device)
    dist.all_reduce(total, op=dist.ReduceOp.MAX)
    return [float(value) for value in total.cpu().tolist()]


def wait_for_all(device: Any) -> None:
    reduce_max([0.0], device)


def choose_backend(kind: str) -> str:
    """Choose the backend for a kind of device; raises RunError if this torch has none."""
    if kind == "cpu":
        return "gloo"
    if kind == "cuda":
        return "nccl"  # RCCL has the same name
    has_xccl = getattr(dist, "is_xccl_available", None)
    if has_xccl is not None and has_xccl():
        return "xccl"
    try:
        import_module("oneccl_bindings_for_pytorch")
    except Exception as fault:
        message = f"no backend for xpu: torch has no xccl and oneCCL's bindings fail: {find_first_line(fault)}"
        raise RunError(message) from None
    return "ccl"


def _find_absent(run: RankRun, store: Any) -> List[int]:
    everyone = [f"joined/{rank}" for rank in range(run.placement.world)]
    try:
        store.wait(everyone, timedelta(seconds=_count_seconds_left(run) * 0.9))
        return []
    except RuntimeError:
        pass
    return [rank for rank, key in enumerate(everyone) if not _has_key(store, key)]


def _has_key(store: Any, key: str) -> bool:
    try:
        store.wait([key], timedelta(milliseconds=50))
    except RuntimeError:
        return False
    return True


def _open_store(run: RankRun) -> Any:
    placement, environment = run.placement, os.environ
    limit = timedelta(seconds=_count_seconds_left(run))
    if run.options.rendezvous is not None:
        store = dist.FileStore(run.options.rendezvous, placement.world)
    elif "MASTER_ADDR" in environment and environment.get("MASTER_PORT", "").isdecimal():
        # torchrun's agent already has the store; otherwise rank 0 makes it
        agent = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        leads = placement.rank == 0 and not agent
        store = dist.TCPStore(host, port, placement.world, leads, timeout=limit, wait_for_workers=False)
    elif placement.world == 1:
        store = dist.HashStore()
    else:
        raise RunError("MASTER_ADDR and MASTER_PORT must say where the ranks meet: the launch script sets them")
    store.set_timeout(limit)
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    # several workloads of a job may share torchrun's store: each has its own prefix
    return dist.PrefixStore(f"smoke/{run.options.workload}/{attempt}", store)


def _leave(run: RankRun, present: Iterable[int], seconds: float) -> None:
    """Let rank 0 leave last: it may hold the store that the others still use."""
    if not run.leads:
        run.store.set(f"left/{run.placement.rank}", "yes")
        return
    try:
        run.store.wait([f"left/{rank}" for rank in present if rank != 0], timedelta(seconds=seconds))
    except RuntimeError:
        pass  # everything is gathered by now


def _count_seconds_left(run: RankRun) -> float:
    return max(1.0, run.count_seconds_left())


_LOST = ("gloo", "nccl", "ccl", "connection", "peer", "timed out", "timeout", "socket", "store")


def run_rank(run: RankRun, device: Any) -> None:
    """Run this rank's part and report; raises RunError, and StoppedError if a signal ended it in good order."""
    part = import_module(f".{run.options.workload}", __package__)
    try:
        part.run_rank(run, device)
        report(run)
        if dist.is_initialized():
            dist.destroy_process_group()
    except RuntimeError as fault:  # torch raises it for a lost peer, a timeout and other faults
        raise explain_loss(run, fault) from None
    stopped = run.record.get("stopped")
    if stopped:
        raise StoppedError(stopped["text"], 128 + int(stopped["signal"]))


def explain_loss(run: RankRun, fault: RuntimeError) -> Exception:
    """Convert a fault of lost communication to a RunError; return any other fault unchanged."""
    text = " ".join(str(fault).split())[:300]
    if not any(word in text.lower() for word in _LOST):
        return fault
    run.record["lost"] = True
    return RunError(f"the communication failed while {run.record['state']}: {text}")


def name_signal(number: int) -> str:
    """Name a signal: SIGTERM for 15."""
    return signal.Signals(number).name
