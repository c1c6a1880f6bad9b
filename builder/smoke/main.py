"""Parse the command line, run the workload and check its result."""

from __future__ import annotations

import sys
from typing import Callable, Dict, List

from . import result_files, run, verdict
from .options import DISTRIBUTED, RunError, UsageError, WorkloadOptions, parse


def main(arguments: List[str]) -> int:
    """Run the command line and return the exit status."""
    options = parse(arguments)
    try:
        if options.workload in DISTRIBUTED:
            return _distributed(options)
        return _COMMANDS[options.workload](options)
    except (RunError, UsageError) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2


def _distributed(options: WorkloadOptions) -> int:
    from . import distributed

    return distributed.main(options)


def _mnist(options: WorkloadOptions) -> int:
    from . import mnist

    return run.WorkloadRun(options).perform(mnist.work)


def _imports(options: WorkloadOptions) -> int:
    from . import startup

    return run.WorkloadRun(options).perform(startup.import_modules)


def _devices(options: WorkloadOptions) -> int:
    from . import hardware

    del options
    torch = hardware.load_torch()
    print(max(hardware.count_devices(torch, kind) for kind in ("cuda", "xpu")))
    return 0


def _judge(options: WorkloadOptions) -> int:
    result = result_files.read(options.file)
    checks = verdict.judge(result)
    run.print_verdict(checks, verdict.explain(result))
    return 0 if verdict.has_passed(checks) else 1


def _conclude(options: WorkloadOptions) -> int:
    from . import suite

    return suite.judge_suite(options)


_COMMANDS: Dict[str, Callable[[WorkloadOptions], int]] = {
    "devices": _devices,
    "mnist": _mnist,
    "imports": _imports,
    "judge": _judge,
    "conclude": _conclude,
}
