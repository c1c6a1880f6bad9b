"""Training over all ranks, saved to a snapshot and resumed from it; imports torch.

A step depends only on seed, rank and step number, so that an interrupted training continues as if it had not been
interrupted.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from array import array
from typing import Any, Dict, Optional

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from . import data, rendezvous, training
from .options import RunError
from .ranks import RankRun
from .rendezvous import name_signal
from .run import find_first_line


def run_rank(run: RankRun, device: Any) -> None:
    """Join the other ranks, train, test and agree; raises RunError."""
    options, placement = run.options, run.placement
    seconds = run.record["seconds"]
    seconds["import"] = round(run.count_seconds(), 3)
    digits = data.load(options.data, options.samples, options.seed)
    seconds["data"] = round(run.count_seconds() - seconds["import"], 3)
    course = training.plan_training(digits, placement.world, options.epochs)
    run.note(data=training.describe_digits(digits))
    rendezvous.join(run)
    rendezvous.connect(run, device.type)
    # each rank starts with different weights: equal ones in the end prove that rank 0 broadcast its own
    torch.manual_seed(options.seed + placement.rank)
    net = training.make_network().to(device)
    initial = training.compute_checksum(net)
    wrapped = DistributedDataParallel(net, device_ids=None if device.type == "cpu" else [device.index])
    trainer = training.Trainer(wrapped, course)
    _resume(options.snapshot, net, trainer, run)
    run.note(state="training", initial_checksum=initial, resumed_from_epoch=trainer.epoch, samples=0, orders=[])
    _train(run, trainer, net, device, digits)
    run.note(checksum=training.compute_checksum(net))


def _train(run: RankRun, trainer: training.Trainer, net: Any, device: Any, digits: data.Digits) -> None:
    options = run.options
    sampler = _sampler(len(digits.train[1]), run)
    images, labels = training.load_pair(digits.train, device)
    run.stoppable = options.snapshot is not None
    began = time.monotonic()

    def go_on() -> bool:
        return _go_on(run, trainer, device)

    while trainer.epoch < trainer.config.epochs:
        sampler.set_epoch(trainer.epoch)
        order = list(sampler)
        run.record["orders"].append(hashlib.sha256(array("q", order).tobytes()).hexdigest()[:16])
        whole = trainer.train_epoch(images, labels, torch.tensor(order).to(device), go_on)
        summary = trainer.summarize()
        run.note(training=summary, samples=trainer.samples, last_loss=summary["last_loss"])
        if whole:
            _test(run, trainer, net, device, digits)
        if run.leads:
            _save(options.snapshot, net, trainer, run)
        if not whole:
            _note_stop(run, trainer)
            break
        run.print_progress(f"epoch {trainer.epoch} of {trainer.config.epochs}, loss {summary['last_loss']:.4f}")
    run.stoppable = False
    run.record["seconds"]["train"] = round(time.monotonic() - began, 3)
    if not trainer.epochs_run and not run.record.get("stopped"):
        _test(run, trainer, net, device, digits)
    run.note(training=trainer.summarize(), last_loss=trainer.summarize()["last_loss"])


def _go_on(run: RankRun, trainer: training.Trainer, device: Any) -> bool:
    """Begin a step unless a rank was asked to stop: then all ranks stop before the same step."""
    if run.options.snapshot is not None:
        asked = int(rendezvous.reduce_max([float(run.signal)], device)[0])
        if asked:
            run.record["stopped"] = {"signal": asked}
            return False
    torch.manual_seed((run.options.seed * 1_000_003 + run.placement.rank) * 1_000_003 + trainer.steps_done)
    return True


def _note_stop(run: RankRun, trainer: training.Trainer) -> None:
    stopped = run.record["stopped"]
    total = trainer.config.epochs * trainer.config.steps
    text = f"ended by {name_signal(stopped['signal'])} after step {trainer.steps_done} of {total}"
    stopped.update(step=trainer.steps_done, text=f'{text}, saved in the snapshot "{run.options.snapshot}"')


def _sampler(images: int, run: RankRun) -> Any:
    placement = run.placement
    return DistributedSampler(
        range(images),
        num_replicas=placement.world,
        rank=placement.rank,
        seed=run.options.seed,
        drop_last=True,
    )


def _test(run: RankRun, trainer: training.Trainer, net: Any, device: Any, digits: data.Digits) -> None:
    """Test this rank's share; the counts are summed over all ranks."""
    images, labels = training.load_pair(digits.test, device)
    mine = slice(run.placement.rank, None, run.placement.world)
    # the network without DDP: ranks may have different numbers of batches and must not wait for each other
    right, loss = trainer.test(net, images[mine], labels[mine])
    total = torch.tensor([float(right), loss, float(len(labels[mine]))], device=device)
    dist.all_reduce(total)
    right_all, loss_all, count = total.cpu().tolist()
    if trainer.epochs_run:
        trainer.accuracies.append(round(right_all / count, 5))
    run.note(accuracy=right_all / count, test_loss=loss_all / count)
    run.print_progress(f"accuracy {run.record['accuracy']:.4f}")


def _save(path: Optional[str], net: Any, trainer: training.Trainer, run: RankRun) -> None:
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


def _resume(path: Optional[str], net: Any, trainer: training.Trainer, run: RankRun) -> None:
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


def _describe_training(trainer: training.Trainer, run: RankRun) -> Dict[str, int]:
    """Describe what must be equal for the training to be the same; epochs may be added."""
    course = trainer.config
    return {"ranks": run.placement.world, "batch": course.batch, "share": course.share, "seed": run.options.seed}


def _describe_difference(one: Dict[str, int], other: Dict[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in one.items() if other.get(name) != value)
