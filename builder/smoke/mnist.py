"""Train and test on one device."""

from __future__ import annotations

import time
from typing import Any

from . import data, hardware
from .run import WorkloadRun


def work(run: WorkloadRun) -> None:
    """Fill the run's result; raises RunError."""
    options, result = run.options, run.result
    torch = hardware.load_torch()
    result["torch"] = hardware.describe_torch(torch)
    kind, index = hardware.choose_device(torch, options.device)
    result["device"] = hardware.describe_device(torch, kind, index)
    result["seconds"]["import"] = round(run.count_seconds(), 3)
    run.print_progress(f"torch {result['torch']['version']} on {result['device']['name']}")
    digits = data.load(options.data, options.samples, options.seed)
    result["seconds"]["data"] = round(run.count_seconds() - result["seconds"]["import"], 3)
    _train(run, torch, hardware.select_device(torch, kind, index), digits)


def _train(run: WorkloadRun, torch: Any, device: Any, digits: data.Digits) -> None:
    from . import training  # imports torch

    options, result = run.options, run.result
    result["data"] = training.describe_digits(digits)
    run.print_progress("{train} digits to train on, {test} to test with ({source})".format(**result["data"]))
    torch.manual_seed(options.seed)
    course = training.plan_training(digits, 1, options.epochs)
    net = training.make_network().to(device)
    trainer = training.Trainer(net, course)
    images, labels = training.load_pair(digits.train, device)
    began = time.monotonic()
    for epoch in range(course.epochs):
        trainer.train_epoch(images, labels, torch.randperm(course.share).to(device))
        right, loss = trainer.test(net, *training.load_pair(digits.test, device))
        tests = len(digits.test[1])
        trainer.accuracies.append(round(right / tests, 5))
        result.update(training=trainer.summarize(), accuracy=right / tests, test_loss=loss / tests)
        result["seconds"]["train"] = round(time.monotonic() - began, 3)
        falling = result["training"]["last_loss"]
        run.print_progress(
            f"epoch {epoch + 1} of {course.epochs}, loss {falling:.4f}, accuracy {result['accuracy']:.4f}"
        )
