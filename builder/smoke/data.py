"""The digits: read from MNIST's IDX files, or drawn."""

from __future__ import annotations

import gzip
import os
import zlib
from dataclasses import dataclass
from typing import Optional, Tuple

from . import digits
from .digits import CLASSES, PIXELS, SIDE
from .exceptions import RunError

_IMAGES_MAGIC = 0x00000803  # unsigned bytes, three dimensions
_LABELS_MAGIC = 0x00000801  # unsigned bytes, one dimension
_FOLDERS = ("", "raw", os.path.join("MNIST", "raw"))  # the last is the layout of torchvision.datasets.MNIST


def read_pair(folder: str, part: str) -> Optional[Tuple[bytes, bytes]]:
    """Read images (784 bytes each) and labels of ``train`` or ``t10k``; None if neither file exists.

    Raises RunError if one of the two is missing, truncated or of another type.
    """
    images_path = _find(folder, part + "-images-idx3-ubyte")
    labels_path = _find(folder, part + "-labels-idx1-ubyte")
    if images_path is None and labels_path is None:
        return None
    if images_path is None or labels_path is None:
        there, kind = (labels_path, "images-idx3") if images_path is None else (images_path, "labels-idx1")
        raise RunError(f'"{there}" is there but its "{part}-{kind}-ubyte" (plain or .gz) is missing')
    images, labels = read_images(images_path), read_labels(labels_path)
    if len(images) != len(labels) * PIXELS:
        message = f'"{images_path}" holds {len(images) // PIXELS} images but "{labels_path}" holds {len(labels)} labels'
        raise RunError(message)
    return images, labels


def read_images(path: str) -> bytes:
    """Read the pixels of an IDX image file; raises RunError if it is invalid, truncated or not 28 x 28."""
    content = _content(path)
    count, rows, columns = _header(path, content, _IMAGES_MAGIC, 3, "an image")
    if (rows, columns) != (SIDE, SIDE):
        raise RunError(f'"{path}" holds images of {rows} x {columns} pixels, expected {SIDE} x {SIDE}')
    return _body(path, content, 16, count * PIXELS)


def read_labels(path: str) -> bytes:
    """Read the labels of an IDX label file; raises RunError if it is invalid, truncated or has a label over 9."""
    content = _content(path)
    (count,) = _header(path, content, _LABELS_MAGIC, 1, "a label")
    labels = _body(path, content, 8, count)
    if labels and max(labels) >= CLASSES:
        raise RunError(f'"{path}" holds the label {max(labels)}, expected 0 to 9')
    return labels


def _find(folder: str, name: str) -> Optional[str]:
    for inner in _FOLDERS:
        for suffix in ("", ".gz"):
            path = os.path.join(folder, inner, name + suffix)
            if os.path.isfile(path):
                return path
    return None


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            if not packed:
                return plain.read()
            with gzip.open(plain) as unpacked:
                return unpacked.read()
    except EOFError:
        raise RunError(f'"{path}" is truncated: its compressed data ends too early') from None
    except (gzip.BadGzipFile, zlib.error) as fault:
        raise RunError(f'"{path}" is damaged: {fault}') from None
    except OSError as fault:
        raise RunError(f'"{path}" cannot be read: {fault.strerror or fault}') from None


def _header(path: str, content: bytes, magic: int, dimensions: int, kind: str) -> Tuple[int, ...]:
    found = int.from_bytes(content[:4], "big")
    if len(content) >= 4 and found != magic:
        raise RunError(f'"{path}" is not {kind} file of MNIST: it starts with 0x{found:08x}, expected 0x{magic:08x}')
    if len(content) < 4 + 4 * dimensions:
        raise RunError(f'"{path}" is truncated: {len(content)} bytes are less than its header')
    return tuple(int.from_bytes(content[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(dimensions))


def _body(path: str, content: bytes, start: int, size: int) -> bytes:
    body = content[start:]
    if len(body) != size:
        state = "truncated" if len(body) < size else "too long"
        raise RunError(f'"{path}" is {state}: its header says {size} bytes of data, it has {len(body)}')
    return body


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
    train, test = read_pair(folder, "train"), read_pair(folder, "t10k")
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
