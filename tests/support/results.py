"""A result of the smoke test as it is in a file: training that passed on one GPU."""

from __future__ import annotations

from typing import Any

TRAINING = {"epochs": 2, "epochs_run": 2, "steps": 126, "first_loss": 2.2, "last_loss": 0.3, "non_finite": 0}
MNIST: dict[str, Any] = {
    "schema": 1,
    "workload": "mnist",
    "error": None,
    "expected": {"device": "auto", "vendor": "nvidia", "torch": "2.6.0", "seconds": 600.0},
    "torch": {"version": "2.6.0+cu124", "cuda": "12.4", "hip": None, "xpu": None},
    "device": {"type": "cuda", "index": 0, "count": 1, "name": "NVIDIA H100", "identity": "0:1:0 GPU-a"},
    "data": {"source": "mnist", "train": 8000, "test": 2000},
    "training": TRAINING,
    "accuracy": 0.97,
    "seconds": {"total": 21.5},
}
