"""What comes before a training: the imports of named modules, and the time from the launch to the first step."""

from __future__ import annotations

import importlib
import os
import sys
import time
from typing import Any, Dict

from . import hardware, result_files
from .ranks import RankRun
from .run import WorkloadRun, find_first_line

_BATCH = 64


def work(run: WorkloadRun) -> None:
    """Time the phases of the start, then report to rank 0 if there are several; raises RunError."""
    facts: Dict[str, Any] = run.record if isinstance(run, RankRun) else run.result
    seconds = facts["seconds"]
    # The wall clock may be set while this runs: read it once, then use the monotonic clock.
    since = time.time() - run.options.started if run.options.started is not None else _measure_age()
    to_python = since - run.count_seconds()
    seconds["exec_to_python"] = round(to_python, 3)
    if isinstance(run, RankRun):
        run.note(state="importing torch")
    before = time.monotonic()
    torch = hardware.load_torch(collect=True)  # it is timed
    seconds["import_torch"] = round(time.monotonic() - before, 3)
    facts["torch"] = hardware.describe_torch(torch)
    before = time.monotonic()
    local = run.placement.local_rank if isinstance(run, RankRun) else 0
    kind, index = hardware.choose_device(torch, run.options.device, local)
    device = hardware.select_device(torch, kind, index)
    torch.ones(1, device=device).add_(1)
    hardware.synchronize(torch, device)
    seconds["first_device"] = round(time.monotonic() - before, 3)
    facts["device"] = hardware.describe_device(torch, kind, index)
    before = time.monotonic()
    _step(torch, device)
    seconds["first_step"] = round(time.monotonic() - before, 3)
    seconds["exec_to_first_step"] = round(to_python + run.count_seconds(), 3)
    run.print_progress(
        "{exec_to_first_step:.2f} s to the first step, {import_torch:.2f} s of it for torch".format(**seconds)
    )
    if isinstance(run, RankRun):
        from . import rendezvous  # imports torch

        rendezvous.run_rank(run, device)


def _step(torch: Any, device: Any) -> None:
    """Run one training step: its kernels are loaded or compiled here."""
    from . import training  # imports torch

    net = training.make_network().to(device)
    optimizer = torch.optim.Adadelta(net.parameters())
    images = torch.zeros(_BATCH, 1, 28, 28, device=device)
    labels = torch.zeros(_BATCH, dtype=torch.long, device=device)
    torch.nn.functional.nll_loss(net(images), labels).backward()
    optimizer.step()
    hardware.synchronize(torch, device)


def _measure_age() -> float:
    """Measure the seconds since this process started (Linux counts hundredths since boot)."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        started = float(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def run_rank(run: RankRun, device: Any) -> None:
    """Join the other ranks, so that they report together."""
    from . import rendezvous  # imports torch

    del device
    rendezvous.join(run)


def import_modules(run: WorkloadRun) -> None:
    """Fill the run's result; if a module kills the process, the result's error names it."""
    found = run.result["imports"] = []
    for name in run.options.modules:
        if run.options.result is not None:
            run.result["error"] = f'the process ended while importing "{name}"'
            result_files.write(run.options.result, run.result)
        entry = _import_module(name)
        found.append(entry)
        run.print_progress(f"{name} {entry['version'] or ''} {entry['error'] or 'imported'} ({entry['seconds']:.2f} s)")


def _import_module(name: str) -> Dict[str, Any]:
    began = time.monotonic()
    error = version = None
    try:
        if name == "mpi4py.MPI":  # its library is loaded; a login node may have no MPI to start
            importlib.import_module("mpi4py").rc.initialize = False
        importlib.import_module(name)
        version = _version(name)
    except (Exception, SystemExit) as fault:
        error = f"{type(fault).__name__}: {find_first_line(fault)}"
    return {"name": name, "error": error, "version": version, "seconds": round(time.monotonic() - began, 3)}


def _version(name: str) -> Any:
    version = getattr(sys.modules.get(name.split(".")[0]), "__version__", None)
    return None if version is None else str(version)
