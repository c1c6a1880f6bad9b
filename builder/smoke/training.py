"""The small network of PyTorch's MNIST example, its training and its test; imports torch.

Two convolutions, 1,199,882 parameters, Adadelta with a falling rate: what the sites' own examples train.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from array import array
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.nn import functional

from .data import SIDE, Digits
from .options import RunError

_BATCH = 64  # over all ranks together: the same training at any number of ranks
_STEPS = {"mnist": 240, "drawn": 125}  # enough to be well above the floors of the verdict
_RATE = 1.0
_FALL = 0.7  # factor of the rate per epoch, for five epochs
_TEST_BATCH = 500


@dataclass(frozen=True)
class TrainingConfig:
    """Number of epochs and batch size of one rank; ``share`` is its images per epoch."""

    epochs: int
    batch: int
    share: int

    @property
    def steps(self) -> int:
        """Optimizer steps in one epoch."""
        return math.ceil(self.share / self.batch)


def plan_training(digits: Digits, world: int, epochs: Optional[int]) -> TrainingConfig:
    """Share the images among the ranks and choose the epochs; raises RunError if a rank has no share."""
    images = len(digits.train[1])
    share = images // world
    if share < 1:
        raise RunError(f"{images} training images are too few for {world} ranks")
    batch = max(1, _BATCH // world)
    return TrainingConfig(epochs or max(1, round(_STEPS[digits.source] / math.ceil(share / batch))), batch, share)


def make_network() -> Any:
    """Make the network with the weights of the current random state."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(dim=1),
    )  # fmt: skip


def load_pair(pair: Tuple[bytes, bytes], device: Any) -> Tuple[Any, Any]:
    """Load images and labels to the device, without numpy."""
    images = torch.frombuffer(bytearray(pair[0]), dtype=torch.uint8).view(-1, 1, SIDE, SIDE)
    labels = torch.frombuffer(bytearray(pair[1]), dtype=torch.uint8).long()
    return images.to(device), labels.to(device)


def compute_checksum(net: Any) -> str:
    """Compute the SHA-256 over the bytes of every parameter, in order."""
    total = hashlib.sha256()
    for parameter in net.parameters():
        data = parameter.detach().cpu().contiguous()
        total.update(ctypes.string_at(data.data_ptr(), data.numel() * data.element_size()))
    return total.hexdigest()


class Trainer:
    """A network in training and the record of its losses; ``net`` may be wrapped for many ranks."""

    def __init__(self, net: Any, course: TrainingConfig) -> None:
        self.net = net
        self.config = course
        self.optimizer = torch.optim.Adadelta(net.parameters(), lr=_RATE)
        fall = _FALL ** min(1.0, 5 / course.epochs)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=fall)
        self.losses: List[float] = []
        self.accuracies: List[float] = []
        self.epoch = 0  # finished epochs, in this run and before it
        self.step = 0  # finished steps of the current epoch
        self.resumed_step = 0
        self.samples = 0
        self.epochs_run = 0

    @property
    def steps_done(self) -> int:
        """Optimizer steps in this run and before it."""
        return self.epoch * self.config.steps + self.step

    def resume(self, epoch: int, step: int, losses: List[float], accuracies: List[float]) -> None:
        """Continue a training after so many epochs, and steps of the next one."""
        self.epoch, self.step, self.resumed_step = epoch, step, step
        self.losses, self.accuracies = losses, accuracies
        self.schedule.last_epoch = epoch

    def train_epoch(self, images: Any, labels: Any, order: Any, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Train once on the images in this order, from the next step on; False if ``go_on`` stopped it."""
        self.net.train()
        losses: List[Any] = []
        self.epochs_run += 1
        whole = True
        for chosen in order.split(self.config.batch)[self.step :]:
            if not go_on():
                whole = False
                break
            self.optimizer.zero_grad()
            loss = functional.nll_loss(self.net(_normalize_images(images[chosen])), labels[chosen])
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
            self.samples += len(chosen)
            self.step += 1
        if losses:
            self.losses += torch.stack(losses).cpu().tolist()
        if whole:
            self.schedule.step()
            self.epoch, self.step = self.epoch + 1, 0
        return whole

    def test(self, net: Any, images: Any, labels: Any) -> Tuple[int, float]:
        """Count the right answers of the network and sum its losses over the images."""
        net.eval()
        right, loss = 0, 0.0
        with torch.no_grad():
            for start in range(0, len(labels), _TEST_BATCH):
                some, truth = images[start : start + _TEST_BATCH], labels[start : start + _TEST_BATCH]
                answers = net(_normalize_images(some))
                right += int((answers.argmax(dim=1) == truth).sum())
                loss += float(functional.nll_loss(answers, truth, reduction="sum"))
        return right, loss

    def summarize(self) -> Dict[str, Any]:
        """Summarize the training: length, first and last losses (means of a tenth of the steps), a curve to plot."""
        finite = [loss for loss in self.losses if math.isfinite(loss)]
        tenth = max(1, len(self.losses) // 10)
        curve = self.losses[:: max(1, len(self.losses) // 100)]
        return {
            "epochs": self.config.epochs,
            "epochs_run": self.epochs_run,
            "batch": self.config.batch,
            "steps": len(self.losses),
            "first_loss": _mean(self.losses[:tenth]),
            "last_loss": _mean(self.losses[-tenth:]),
            "non_finite": len(self.losses) - len(finite),
            "losses": [round(loss, 5) for loss in curve],
            "losses_digest": hashlib.sha256(array("d", self.losses).tobytes()).hexdigest(),
            "accuracies": list(self.accuracies),
            "resumed_step": self.resumed_step,
        }


def describe_digits(digits: Digits) -> Dict[str, Any]:
    """Return the source and numbers of the digits."""
    return {"source": digits.source, "train": len(digits.train[1]), "test": len(digits.test[1])}


def _normalize_images(images: Any) -> Any:
    return (images.float() / 255 - 0.1307) / 0.3081  # mean and standard deviation of MNIST's training images


def _mean(values: List[float]) -> Optional[float]:
    return sum(values) / len(values) if values else None
