"""Draw MNIST-like digits from strokes: the same bytes for the same seed on every machine and Python.

Only ``random.Random.random``, ``getrandbits`` and the four IEEE operations are used: no sine, no shuffle, nothing whose
result has changed between Pythons or differs between maths libraries.
"""

from __future__ import annotations

import math
from random import Random
from typing import List, Sequence, Tuple

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
