"""Save a training between two steps and resume it; imports torch."""

from __future__ import annotations

import io
import os
from typing import Any, Dict, Optional

import torch

from .exceptions import RunError
from .ranks import RankRun
from .run import find_first_line
from .training import Trainer


def save(path: Optional[str], net: Any, trainer: Trainer, run: RankRun) -> None:
    """Save the state of the training, completely or not at all (rank 0 only); raises RunError."""
    if path is None:
        return
    state = {
        "course": _describe_training(trainer, run),
        "epoch": trainer.epoch,
        "step": trainer.step,
        "net": net.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "losses": list(trainer.losses),
        "accuracies": list(trainer.accuracies),
    }
    draft = f"{path}.{os.getpid()}.tmp"
    try:
        content = io.BytesIO()  # torch reports a full disk as "unexpected pos"
        torch.save(state, content)
        with open(draft, "wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except (OSError, RuntimeError) as fault:
        raise RunError(f'the snapshot "{path}" cannot be written: {find_first_line(fault)}') from None
    finally:
        if os.path.exists(draft):
            os.remove(draft)


def resume(path: Optional[str], net: Any, trainer: Trainer, run: RankRun) -> None:
    """Restore on every rank the state that rank 0 finds; raises RunError."""
    if path is None:
        return
    if run.leads:
        run.store.set("resume", "yes" if os.path.exists(path) else "no")
    if run.store.get("resume") == b"no":
        return
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        there, here = state["course"], _describe_training(trainer, run)
        if there != here:
            raise ValueError(
                f"it is of {_describe_difference(there, here)}, this training of {_describe_difference(here, there)}"
            )
        net.load_state_dict(state["net"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        trainer.resume(int(state["epoch"]), int(state["step"]), list(state["losses"]), list(state["accuracies"]))
    except Exception as fault:
        raise RunError(f'the snapshot "{path}" cannot be resumed: {find_first_line(fault)}') from None


def _describe_training(trainer: Trainer, run: RankRun) -> Dict[str, int]:
    """Describe what must be equal for the training to be the same; epochs may be added."""
    course = trainer.config
    return {"ranks": run.placement.world, "batch": course.batch, "share": course.share, "seed": run.options.seed}


def _describe_difference(one: Dict[str, int], other: Dict[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in one.items() if other.get(name) != value)
