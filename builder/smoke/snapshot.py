"""Save a training after an epoch and resume it; imports torch."""

from __future__ import annotations

import os
from typing import Any, Optional

import torch

from .failure import RunError
from .ranks import Placement
from .run import first_line
from .training import Trainer


def save(path: Optional[str], net: Any, trainer: Trainer, epoch: int) -> None:
    """Save the state after so many epochs, whole or not at all (rank 0 only); raises RunError."""
    if path is None:
        return
    state = {
        "epoch": epoch,
        "net": net.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "schedule": {"last_epoch": trainer.schedule.last_epoch},
        "losses": list(trainer.losses),
    }
    draft = f"{path}.{os.getpid()}.tmp"
    try:
        torch.save(state, draft)
        os.replace(draft, path)
    except (OSError, RuntimeError) as fault:
        raise RunError(f'the snapshot "{path}" cannot be written: {first_line(fault)}') from None
    finally:
        if os.path.exists(draft):
            os.remove(draft)


def resume(path: Optional[str], net: Any, trainer: Trainer, placement: Placement, store: Any) -> int:
    """Restore the state that rank 0 finds on every rank and return the first epoch to train; raises RunError."""
    if path is None:
        return 0
    if placement.rank == 0:
        store.set("resume", "yes" if os.path.exists(path) else "no")
    if store.get("resume") == b"no":
        return 0
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        net.load_state_dict(state["net"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        trainer.losses = list(state["losses"])
        epoch = int(state["epoch"])
    except Exception as fault:
        raise RunError(f'the snapshot "{path}" cannot be resumed: {first_line(fault)}') from None
    trainer.schedule.last_epoch = epoch
    return epoch
