"""What the end of a build needs, begun before the end: while an engine works, and while the disk takes the image."""

from __future__ import annotations

import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from builder.model.plan import Plan

if TYPE_CHECKING:
    from builder.execute.image_scan import SbomTask

BEGINNING = 0.5  # seconds; in them the step itself needs the processor more


class BackgroundScan:
    """Looks inside the image of a plan: as soon as its step reports that it is whole, else when it is needed."""

    def __init__(self, plan: Plan, *, folder: Path, digest: str) -> None:
        self._digest = digest
        self._plan, self._folder = plan, folder
        self._begun: SbomTask | None = None
        modules = threading.Timer(BEGINNING, import_module, args=("builder.execute.image_scan",))
        modules.daemon = True
        modules.start()

    def on_whole(self, image: str) -> None:
        """An image without its name yet is whole; that of the plan begins it."""
        if self._begun is None and image == f"{self._plan.image}.part":
            self._begun = self._inside(self._folder / f"{self._plan.image}.part", named=False)

    def inside(self, *, put: bool) -> SbomTask:
        """The look inside; without `put` the image stays as it is."""
        image = self._folder / self._plan.image
        begun, self._begun = self._begun, None
        if begun is not None:
            if put and begun.becomes(image):
                return begun
            begun.drop()
        return self._inside(image, put=put)

    def _inside(self, image: Path, *, put: bool = True, named: bool = True) -> SbomTask:
        from builder.execute.image_scan import SbomTask

        plan = self._plan
        return SbomTask(
            image, name=plan.target, tool=plan.tool, plan=self._digest, put=put, named=named,
        )  # fmt: skip
