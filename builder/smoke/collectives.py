"""Run one rank's part of a workload, and report lost peers; imports torch."""

from __future__ import annotations

import signal
from importlib import import_module
from typing import Any

import torch.distributed as dist

from . import rendezvous
from .exceptions import RunError, StoppedError
from .ranks import RankRun

_LOST = ("gloo", "nccl", "ccl", "connection", "peer", "timed out", "timeout", "socket", "store")


def run_rank(run: RankRun, device: Any) -> None:
    """Run this rank's part and report; raises RunError, and StoppedError if a signal ended it in good order."""
    part = import_module(f".{run.options.workload}", __package__)
    try:
        part.run_rank(run, device)
        rendezvous.report(run)
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
