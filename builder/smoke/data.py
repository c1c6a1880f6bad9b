"""The digits: read from MNIST's IDX files, or drawn from strokes.

Only ``random.Random.random``, ``getrandbits`` and the four IEEE operations are used: no sine, no shuffle, nothing whose
result has changed between Pythons or differs between maths libraries.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from dataclasses import dataclass
from random import Random
from typing import List, Optional, Sequence, Tuple

from .options import RunError

SIDE = 28
PIXELS = SIDE * SIDE
CLASSES = 10

_Stroke = Tuple[Tuple[float, float], ...]

# Strokes in a box of x -1..1 (to the right) and y -1..1 (downwards); several variants of some digits.
_LOOP: _Stroke = (
    (0.0, -1.0), (0.42, -0.82), (0.62, -0.35), (0.62, 0.35), (0.42, 0.82), (0.0, 1.0),
    (-0.42, 0.82), (-0.62, 0.35), (-0.62, -0.35), (-0.42, -0.82), (0.0, -1.0),
)  # fmt: skip
_GLYPHS: Tuple[Tuple[Tuple[_Stroke, ...], ...], ...] = (
    ((_LOOP,),),
    (
        ((((0.0, -1.0), (0.0, 1.0))),),
        (((-0.35, -0.6), (0.05, -1.0), (0.05, 1.0)),),
        (((-0.35, -0.6), (0.0, -1.0), (0.0, 1.0)), ((-0.4, 1.0), (0.4, 1.0))),
    ),
    (
        (((-0.6, -0.55), (-0.35, -0.92), (0.1, -1.0), (0.5, -0.75), (0.5, -0.3), (-0.6, 1.0), (0.65, 1.0)),),
        (((-0.5, -0.7), (0.0, -1.0), (0.5, -0.7), (0.4, -0.1), (-0.2, 0.75), (-0.55, 0.9), (-0.5, 0.6), (0.65, 0.95)),),
    ),
    (
        (((-0.55, -0.8), (0.0, -1.0), (0.5, -0.75), (0.45, -0.3), (-0.1, -0.05), (0.5, 0.2), (0.55, 0.7), (0.0, 1.0),
          (-0.6, 0.8)),),
        (((-0.55, -1.0), (0.5, -1.0), (-0.05, -0.2), (0.5, 0.1), (0.55, 0.65), (0.0, 1.0), (-0.6, 0.75)),),
    ),
    (
        (((0.3, 1.0), (0.3, -1.0), (-0.65, 0.35), (0.7, 0.35)),),
        (((-0.5, -0.9), (-0.55, 0.1), (0.55, 0.1)), ((0.45, -0.9), (0.4, 1.0))),
    ),
    (
        (((0.55, -1.0), (-0.45, -1.0), (-0.5, -0.15), (0.1, -0.25), (0.55, 0.1), (0.55, 0.65), (0.05, 1.0),
          (-0.55, 0.85)),),
    ),
    (
        (((0.4, -1.0), (-0.2, -0.55), (-0.55, 0.15), (-0.5, 0.75), (0.0, 1.0), (0.5, 0.75), (0.5, 0.25), (0.05, 0.0),
          (-0.5, 0.3)),),
    ),
    (
        (((-0.6, -1.0), (0.6, -1.0), (-0.1, 1.0)),),
        (((-0.6, -0.95), (0.6, -1.0), (0.05, 0.0), (-0.1, 1.0)), ((-0.35, 0.05), (0.45, 0.0))),
    ),
    (
        (((0.45, -0.7), (0.0, -1.0), (-0.45, -0.7), (-0.35, -0.25), (0.4, 0.2), (0.5, 0.65), (0.0, 1.0), (-0.5, 0.65),
          (-0.4, 0.2), (0.35, -0.25), (0.45, -0.7)),),
    ),
    (
        (((0.5, -0.6), (0.05, -1.0), (-0.45, -0.75), (-0.45, -0.25), (0.0, 0.0), (0.5, -0.3), (0.5, -0.65),
          (0.45, 1.0)),),
        (((0.5, -0.5), (0.1, -1.0), (-0.45, -0.7), (-0.4, -0.2), (0.1, -0.05), (0.5, -0.5), (0.4, 0.5), (-0.1, 1.0)),),
    ),
)  # fmt: skip

_STEPS = 4  # sub-pixel positions of a brush along each axis
_INK = 200  # ink and noise together stay below 256: they are added as one big number
_NOISE = bytes(0 if level < 150 else (level - 150) // 2 for level in range(256))
_Brush = Tuple[Tuple[int, int], ...]


def _make_brushes(radius: float) -> List[_Brush]:
    """Compute the pixels (offset, ink) that a round pen of this radius darkens, for each sub-pixel position."""
    brushes = []
    reach = int(radius + 1.5)
    for row in range(_STEPS):
        for column in range(_STEPS):
            brush = []
            for y in range(-reach, reach + 2):
                for x in range(-reach, reach + 2):
                    away = math.sqrt((x - column / _STEPS) ** 2 + (y - row / _STEPS) ** 2)
                    ink = int(_INK * min(1.0, radius + 0.5 - away))
                    if ink > 0:
                        brush.append((y * SIDE + x, ink))
            brushes.append(tuple(brush))
    return brushes


_PENS = tuple(_make_brushes(radius) for radius in (0.6, 0.9, 1.2, 1.6))


def draw(first: int, count: int, seed: int = 1) -> Tuple[bytes, bytes]:
    """Draw ``count`` images of a seed from number ``first``: their pixels (784 bytes each) and their labels."""
    pixels = []
    labels = bytearray()
    for index in range(first, first + count):
        rng = Random(seed * 1_000_003 + index)
        label = int(rng.random() * CLASSES)
        labels.append(label)
        pixels.append(_add_noise(_ink_digit(label, rng), rng))
    return b"".join(pixels), bytes(labels)


def _ink_digit(label: int, rng: Random) -> bytearray:
    """Draw one digit: moved, rotated, slanted, stretched and jittered."""
    ways = _GLYPHS[label]
    strokes = ways[int(rng.random() * len(ways))]
    pen = _PENS[int(rng.random() * len(_PENS))]
    half = (rng.random() - 0.5) * 0.42  # tangent of half the angle: up to 24 degrees either way
    turn_x, turn_y = (1 - half * half) / (1 + half * half), 2 * half / (1 + half * half)
    slant = (rng.random() - 0.5) * 0.6
    wide, high = 6.0 + 3.6 * rng.random(), 6.6 + 3.0 * rng.random()
    middle_x, middle_y = 13.5 + (rng.random() - 0.5) * 6, 13.5 + (rng.random() - 0.5) * 5
    canvas = bytearray(PIXELS)
    for stroke in strokes:
        points = []
        for x, y in stroke:
            x = (x + (rng.random() - 0.5) * 0.22 - slant * y) * wide
            y = (y + (rng.random() - 0.5) * 0.22) * high
            points.append((middle_x + x * turn_x - y * turn_y, middle_y + x * turn_y + y * turn_x))
        _ink_stroke(canvas, points, pen)
    return canvas


def _ink_stroke(canvas: bytearray, points: Sequence[Tuple[float, float]], pen: Sequence[_Brush]) -> None:
    """Draw a stroke: one stamp of the pen for every pixel along the points."""
    x, y = points[0]
    for next_x, next_y in points[1:]:
        length = max(abs(next_x - x), abs(next_y - y))
        stamps = int(length) + 1
        for stamp in range(stamps + 1):
            part = stamp / stamps
            # the widest brush reaches 2.1 pixels; this margin keeps it from wrapping to the next row
            column = min(max(x + (next_x - x) * part, 3.0), SIDE - 4.0)
            row = min(max(y + (next_y - y) * part, 3.0), SIDE - 4.0)
            brush = pen[int((row - int(row)) * _STEPS) * _STEPS + int((column - int(column)) * _STEPS)]
            base = int(row) * SIDE + int(column)
            for offset, ink in brush:
                if canvas[base + offset] < ink:
                    canvas[base + offset] = ink
        x, y = next_x, next_y


def _add_noise(canvas: bytearray, rng: Random) -> bytes:
    """Add grain to every pixel: two 784-byte numbers are added at once, and no byte of them can overflow."""
    grain = rng.getrandbits(PIXELS * 8).to_bytes(PIXELS, "little").translate(_NOISE)
    return (int.from_bytes(canvas, "little") + int.from_bytes(grain, "little")).to_bytes(PIXELS, "little")


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
        return Digits("drawn", draw(0, samples, seed), draw(samples, tests, seed))
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
    return Digits("mnist", (train[0][: samples * PIXELS], train[1][:samples]), test)


def split(pair: Tuple[bytes, bytes]) -> Tuple[Tuple[bytes, bytes], Tuple[bytes, bytes]]:
    """Split images and labels: four fifths to train, every fifth to test.

    Every fifth, because the halves of MNIST's own test set differ in handwriting and difficulty.
    """
    images, labels = pair
    parts = []
    for tested in (False, True):
        chosen = [n for n in range(len(labels)) if (n % _TEST_EVERY == _TEST_EVERY - 1) is tested]
        pixels = b"".join(images[n * PIXELS : (n + 1) * PIXELS] for n in chosen)
        parts.append((pixels, bytes(labels[n] for n in chosen)))
    return parts[0], parts[1]
