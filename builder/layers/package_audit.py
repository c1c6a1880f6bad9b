"""Which GPUs the packages of an image can use: read from its layers, wheel by wheel, and kept with the wheel.

What a file holds is cached by what decides the wheel; the judgement for a site is computed in each build. Layers with
other packages (conda's, those of a container) are read as a whole and kept by the layer's digest.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from ..audit import facts, planned
from ..audit.content import AuditError
from ..audit.distribution import Distribution
from ..audit.gpu_verdict import Verdict
from ..audit.names import PLAN
from ..sif.bounded import BoundsError
from ..sif.errors import log_line
from .cache import Store, compute_key
from .image_file import Layer
from .wheels import Pin

OTHERS = ("system", "files", "recipe")  # layers without packages of pip or conda
ALL = ("",)  # folders


class PackageAudit:
    """The audit of one build; nothing is read where the plan asks for none."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.plan, self.store = planned.read_audit_plan(folder / PLAN), store
        self.verdicts: tuple[Verdict, ...] = ()
        self._pins: dict[str, tuple[list[object], tuple[Pin, ...]]] = {}

    def note_wheels(self, layer: Layer | None, pins: Sequence[Pin], *, place: list[object]) -> None:
        """Note which wheels a layer holds; `place` decides which file of a release is installed."""
        if layer is not None:
            self._pins[layer.entry.key] = place, tuple(pins)

    def judge(self, layers: Iterable[Layer]) -> None:
        """Read what was not read before, and judge all of it; what cannot be read is printed."""
        if self.plan is None:
            return
        found: list[Distribution] = []
        started = clock.monotonic()
        for layer in layers:
            if layer.entry.title in OTHERS:
                continue
            try:
                found += self._read_wheels(layer) if layer.entry.key in self._pins else self._read_layer(layer)
            except (AuditError, BoundsError, OSError) as error:
                log_line(f"note: layer {layer.entry.title} is not audited: {error}")
        self.verdicts = planned.judge_installed(found, self.plan)
        log_line(f"audited {len(self.verdicts)} packages with ELF files in {clock.monotonic() - started:.1f} s")

    def _read_wheels(self, layer: Layer) -> list[Distribution]:
        place, pins = self._pins[layer.entry.key]
        keys = {planned.normalize(pin.name): self._name("wheel", [place, pin.inputs]) for pin in pins}
        known = {name: one for name, key in keys.items() if (one := self._recall(key)) is not None}
        if len(known) < len(keys):
            known = self._sort(planned.read_installed(layer.entry.path, ALL).distributions, keys)
        return [one for found in known.values() for one in found]

    def _sort(self, found: Iterable[Distribution], keys: dict[str, str]) -> dict[str, list[Distribution]]:
        """The distributions of a layer by the wheel that they came with; that of others is kept by no one."""
        known: dict[str, list[Distribution]] = {name: [] for name in (*keys, "")}
        for one in found:
            known.get(planned.normalize(one.name), known[""]).append(one)
        for name, key in keys.items():
            self._remember(key, known[name])
        return known

    def _read_layer(self, layer: Layer) -> list[Distribution]:
        key = f"{self._name('layer', [])}-{layer.entry.sha256}"
        found = self._recall(key)
        if found is None:
            found = list(planned.read_installed(layer.entry.path, ALL).distributions)
            self._remember(key, found)
        return found

    def _name(self, kind: str, inputs: list[object]) -> str:
        return f"audit-{compute_key([facts.FORMAT, kind, inputs])}"

    def _remember(self, key: str, found: Iterable[Distribution]) -> None:
        self.store.remember("facts", key, [facts.describe_distribution(one) for one in found])

    def _recall(self, key: str) -> list[Distribution] | None:
        with suppress(KeyError, TypeError, AttributeError, ValueError):
            rows = self.store.recall("facts", key)
            return None if rows is None else [facts.parse_distribution(row) for row in rows]
        return None

    def finish(self, image: Path) -> tuple[str, str]:
        """What is wrong with the draft of an image, as `planned.finish`."""
        return planned.finish(self.plan, self.verdicts, image) if self.plan is not None else ("", "")
