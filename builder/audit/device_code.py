"""One piece of code for a GPU, named as its vendor's tools name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Vendor = Literal["nvidia", "amd", "intel"]
Kind = Literal["cubin", "ptx", "hip", "sycl", "spirv"]
VENDOR: dict[Kind, Vendor] = {"cubin": "nvidia", "ptx": "nvidia", "hip": "amd", "sycl": "intel", "spirv": "intel"}


@dataclass(frozen=True, order=True, kw_only=True)
class Code:
    """Code for `target`: sm_90a (cubin), compute_90 (ptx), gfx90a:xnack- (hip), 12.60.7 (sycl), spir64 (spirv).

    `isa` is the version of PTX that the text is written in; a driver compiles it only where it knows that version.
    """

    kind: Kind
    target: str
    isa: str = ""

    @property
    def vendor(self) -> Vendor:
        """Whose GPUs it is for."""
        return VENDOR[self.kind]

    def __str__(self) -> str:
        return self.target
