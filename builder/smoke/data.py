"""The digits for training and test: MNIST files if given, drawn ones otherwise."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Optional, Tuple

from . import digits, idx
from .exceptions import RunError

SAMPLES = {"mnist": 8000, "drawn": 4000}  # default number of training images
_TEST_EVERY = 5  # one image in five is for the test if the files contain one set only


@dataclass(frozen=True)
class Digits:
    """Images (784 bytes each) and labels (one byte each), for training and test."""

    source: str  # "mnist" or "drawn"
    train: Tuple[bytes, bytes]
    test: Tuple[bytes, bytes]


def load(folder: Optional[str], samples: Optional[int] = None, seed: int = 1) -> Digits:
    """Load at most ``samples`` training images from the folder's MNIST files, or draw them; raises RunError."""
    samples = samples or SAMPLES["drawn" if folder is None else "mnist"]
    if folder is None:
        tests = max(1, samples // (_TEST_EVERY - 1))
        return Digits("drawn", digits.draw(0, samples, seed), digits.draw(samples, tests, seed))
    if not os.path.isdir(folder):
        raise RunError(f'the data folder "{folder}" does not exist')
    train, test = idx.read_pair(folder, "train"), idx.read_pair(folder, "t10k")
    one = train or test
    if one is None:
        raise RunError(
            f'the data folder "{folder}" holds no MNIST files: expected t10k-images-idx3-ubyte and '
            "t10k-labels-idx1-ubyte (plain or .gz), or the train- ones"
        )
    if train is None or test is None:
        train, test = split(one)
    return Digits("mnist", (train[0][: samples * digits.PIXELS], train[1][:samples]), test)


def split(pair: Tuple[bytes, bytes]) -> Tuple[Tuple[bytes, bytes], Tuple[bytes, bytes]]:
    """Split images and labels: four fifths to train, every fifth to test.

    Every fifth, because the halves of MNIST's own test set differ in handwriting and difficulty.
    """
    images, labels = pair
    parts = []
    for tested in (False, True):
        chosen = [n for n in range(len(labels)) if (n % _TEST_EVERY == _TEST_EVERY - 1) is tested]
        pixels = b"".join(images[n * digits.PIXELS : (n + 1) * digits.PIXELS] for n in chosen)
        parts.append((pixels, bytes(labels[n] for n in chosen)))
    return parts[0], parts[1]
