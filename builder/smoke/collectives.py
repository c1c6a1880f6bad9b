"""One rank's part of a workload, and what becomes of it when the others are lost; imports torch."""

from __future__ import annotations

import signal
from importlib import import_module
from typing import Any

import torch.distributed as dist

from . import rendezvous
from .errors import RunError, StoppedError
from .ranks import RankRun

_LOST = ("gloo", "nccl", "ccl", "connection", "peer", "timed out", "timeout", "socket", "store")


def run_rank(run: RankRun, device: Any) -> None:
    """Do this rank's part and report; raises RunError, StoppedError when a signal ended it in good order."""
    part = import_module(f".{run.options.workload}", __package__)
    try:
        part.run_rank(run, device)
        rendezvous.report(run)
        if dist.is_initialized():
            dist.destroy_process_group()
    except RuntimeError as fault:  # what torch raises for a lost peer, a timeout, and much else
        raise explain_loss(run, fault) from None
    stopped = run.record.get("stopped")
    if stopped:
        raise StoppedError(stopped["text"], 128 + int(stopped["signal"]))


def explain_loss(run: RankRun, fault: RuntimeError) -> Exception:
    """Say that the others were lost where the fault tells of it; any other fault is given back as it is."""
    text = " ".join(str(fault).split())[:300]
    if not any(word in text.lower() for word in _LOST):
        return fault
    run.record["lost"] = True
    return RunError(f"the communication failed while {run.record['state']}: {text}")


def name_signal(number: int) -> str:
    """SIGTERM for 15."""
    return signal.Signals(number).name
