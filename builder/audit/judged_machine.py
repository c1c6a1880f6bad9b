"""The machine that packages are judged for, and the words of a judgement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Judgement = Literal[
    "uses this GPU", "CPU only", "other vendor", "wrong runtime major", "no code for this GPU",
    "library missing in the image", "newer glibc", "other Python", "other processor",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The GPU of a machine and what its driver serves; what is not known is empty, and is not judged.

    `targets` are sm_90, gfx90a (with features where they are known: gfx90a:xnack+), or Intel's names (pvc); `majors`
    those of CUDA or ROCm; `cuda` the newest toolkit that the driver is native to; `python` as 3.12 or 3.13t; `level`
    the processor's x86-64 level (v2 to v4).
    """

    vendor: Literal["nvidia", "amd", "intel", "cpu"]
    targets: tuple[str, ...] = ()
    majors: tuple[int, ...] = ()
    cuda: str = ""
    arch: str = "x86_64"
    glibc: str = ""
    python: str = ""
    level: str = ""
