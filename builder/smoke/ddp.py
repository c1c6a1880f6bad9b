"""The same training over all ranks: as one rank of a launcher's, or as the parent of ranks of our own."""

from __future__ import annotations

import os
import threading

from . import hardware, ranks
from .failure import UsageError
from .options import Options
from .rank_run import RankRun
from .run import Run


def main(options: Options) -> int:
    """Run as what the options and the environment make of this process; raises UsageError when that is unclear."""
    if options.ranks is not None:
        from . import supervise

        ranks.check_own(os.environ)
        return supervise.Supervised(options).supervise()
    placement = ranks.from_environment(os.environ)
    if placement is None:
        raise UsageError(
            "no launcher started this process (no RANK, PMI_RANK, SLURM_PROCID): start it by one or give --ranks"
        )
    run = RankRun(options, placement)
    if options.rendezvous is not None:
        threading.Thread(target=_follow_parent, name="parent", daemon=True).start()
    return run.perform(work)


def work(run: Run) -> None:
    """Do one rank's part; raises RunError."""
    assert isinstance(run, RankRun)
    run.note(state="starting")
    torch = hardware.load_torch()
    run.note(torch=hardware.describe_torch(torch))
    kind, index = hardware.choose_device(torch, run.options.device, run.placement.local_rank)
    run.note(device=hardware.describe_device(torch, kind, index))
    from . import rank  # imports torch

    rank.train(run, hardware.prepare(torch, kind, index))


def _follow_parent() -> None:
    """End with the parent: its end of our standard input closes when it dies, even of SIGKILL."""
    while os.read(0, 64):
        pass
    os._exit(1)
