"""Which GPUs the packages of an image can use: read from its layers, wheel by wheel, and kept with the wheel.

What a file holds is cached by what decides the wheel; the judgement for a site is computed in each build. Layers with
other packages (conda's, those of a container) are read as a whole and kept by the layer's digest. A new layer is read
in its folder while it is packed; a layer of the cache whose packages were not read before is read in its squashfs file.
"""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..audit import PLAN, distribution, planned
from ..audit.content import AuditError
from ..audit.distribution import Distribution
from ..audit.gpu_verdict import Verdict
from ..audit.installed import read_folder
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
        self._read: dict[str, list[Distribution]] = {}  # what was read while a layer was packed, by the layer's key

    def note_wheels(self, key: str, pins: Sequence[Pin], *, place: list[object]) -> None:
        """Note which wheels the layer of a key holds; `place` decides which file of a release is installed."""
        self._pins[key] = place, tuple(pins)

    @contextmanager
    def read_beside(self, key: str, tree: Path, *, title: str) -> Iterator[None]:
        """Read the folder of a layer while it is packed, where its packages were not read before."""
        if self.plan is None or title in OTHERS or (key in self._pins and self._recall_wheels(key) is not None):
            yield
            return
        reader = threading.Thread(target=self._read_tree, args=(key, tree))
        reader.start()
        try:
            yield
        finally:
            reader.join()

    def _read_tree(self, key: str, tree: Path) -> None:
        with suppress(AuditError, BoundsError, OSError):  # the packed layer is read in its place
            self._read[key] = list(read_folder(tree).distributions)

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
                found += self._find_packages(layer)
            except (AuditError, BoundsError, OSError) as error:
                log_line(f"note: layer {layer.entry.title} is not audited: {error}")
        self.verdicts = planned.judge_installed(found, self.plan)
        log_line(f"audited {len(self.verdicts)} packages with ELF files in {clock.monotonic() - started:.1f} s")

    def judge_fetched(self, layers: Sequence[Layer], packages: Sequence[str]) -> tuple[str, str]:
        """Judge layers, and wheels that were unpacked without one; what is wrong, as `planned.explain_wrong`.

        `packages` are those that were resolved in the end, as name==version.
        """
        if self.plan is None:
            return "", ""
        self.judge(layers)
        made = {layer.entry.key for layer in layers}
        rest = [key for key, (_, pins) in self._pins.items() if key not in made and _are_in(pins, packages)]
        found = [one for key in rest for one in self._sort_wheels(key)]
        wrong = planned.explain_wrong(self.plan, (*self.verdicts, *planned.judge_installed(found, self.plan)))
        return ("", "") if self.plan.ignored else wrong

    def _find_packages(self, layer: Layer) -> list[Distribution]:
        """The packages of a layer: read before, or while it was packed, or now."""
        key = layer.entry.key
        if key in self._pins:
            if (known := self._recall_wheels(key)) is not None:
                return known
            self._read_layer(layer)
            return self._sort_wheels(key)
        name = f"{self._name('layer', [])}-{layer.entry.sha256}"
        known = self._recall(name)
        if known is None:
            known = self._read_layer(layer)
            self._remember(name, known)
        return known

    def _read_layer(self, layer: Layer) -> list[Distribution]:
        """What was read while it was packed, else what its file holds."""
        key = layer.entry.key
        if key not in self._read:
            self._read[key] = list(planned.read_installed(layer.entry.path, ALL).distributions)
        return self._read[key]

    def _name_wheels(self, key: str) -> dict[str, str]:
        """The name of the facts of each wheel of a layer, by the name of its package."""
        place, pins = self._pins[key]
        return {planned.normalize(pin.name): self._name("wheel", [place, pin.inputs]) for pin in pins}

    def _recall_wheels(self, key: str) -> list[Distribution] | None:
        """What was read of the wheels of a layer, None where one of them was not read."""
        known = [self._recall(name) for name in self._name_wheels(key).values()]
        found = [one for one in known if one is not None]
        return [one for some in found for one in some] if len(found) == len(known) else None

    def _sort_wheels(self, key: str) -> list[Distribution]:
        """What is known of the wheels of a layer; what was just read is kept by wheel, and that of others by no one."""
        names = self._name_wheels(key)
        if key not in self._read:
            return self._recall_wheels(key) or []
        known: dict[str, list[Distribution]] = {name: [] for name in (*names, "")}
        for one in self._read[key]:
            known.get(planned.normalize(one.name), known[""]).append(one)
        for name, fact in names.items():
            self._remember(fact, known[name])
        return self._read[key]

    def _name(self, kind: str, inputs: list[object]) -> str:
        return f"audit-{compute_key([distribution.FORMAT, kind, inputs])}"

    def _remember(self, key: str, found: Iterable[Distribution]) -> None:
        self.store.remember("facts", key, [distribution.describe_distribution(one) for one in found])

    def _recall(self, key: str) -> list[Distribution] | None:
        with suppress(KeyError, TypeError, AttributeError, ValueError):
            rows = self.store.recall("facts", key)
            return None if rows is None else [distribution.parse_distribution(row) for row in rows]
        return None

    def finish(self, image: Path) -> tuple[str, str]:
        """What is wrong with the draft of an image, as `planned.finish`."""
        return planned.finish(self.plan, self.verdicts, image) if self.plan is not None else ("", "")


def _are_in(pins: Iterable[Pin], packages: Sequence[str]) -> bool:
    return {f"{pin.name}=={pin.version}" for pin in pins} <= set(packages)
