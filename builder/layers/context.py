"""One build under way: what its parts share, and how each of them makes a layer."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ..sif.errors import LayeringError, log_line
from ..sif.normalise import EPOCH
from ..sif.pack import Packer, Piece, find_packer
from ..sif.sif import SifError
from .base_facts import BaseFacts, list_squashfs
from .cache import Store, compute_key
from .container_steps import ContainerRunner, find_whiteouts
from .image_file import Draft, Layer, write_image
from .package_audit import PackageAudit
from .spec import FIX, Spec, is_offline

FORMAT = 2  # version of what a layer holds; another number makes all layers again

Fill = Callable[[Path], Sequence[Piece] | None]  # writes a folder that becomes the root of a layer


@dataclass(kw_only=True)
class BuildContext:
    """One build; `facts` and `packer` describe the base image, and `facts` also the layers made in a container."""

    spec: Spec
    store: Store
    packer: Packer
    containers: ContainerRunner
    environment: Mapping[str, str]
    cache: Path
    work: Path
    time: int
    stack: ExitStack
    pool: ThreadPoolExecutor
    audit: PackageAudit
    base: Path = Path()
    facts: BaseFacts = field(default_factory=lambda: BaseFacts(sha256="", machine=""))
    layers: list[Layer] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    draft: Draft | None = None  # the image, once the base image is known
    tasks: list[Future[object]] = field(default_factory=list)

    @property
    def offline(self) -> bool:
        """Whether no server may be asked."""
        return is_offline(self.environment)

    def run_in_background(self, task: Callable[[], object]) -> None:
        """Start a task; `wait_for_tasks` raises its error."""
        self.tasks.append(self.pool.submit(task))

    def wait_for_tasks(self) -> None:
        """Wait for the tasks in the background; raises what the first failed one raised."""
        for task in self.tasks:
            task.result()

    def keep_entry(self, kind: str, key: str) -> None:
        """Prevent the removal of an entry of the cache until this build has ended."""
        self.stack.enter_context(self.store.keep(kind, key))

    def add_layer(self, title: str, inputs: Sequence[object], fill: Fill, *, keep_modes: bool = False) -> None:
        """Make a layer of the folder that `fill` writes, and append it to the image."""
        self.append_layers([self.make_layer(title, inputs, fill, keep_modes=keep_modes)])

    def append_layers(self, layers: Iterable[Layer | None]) -> None:
        """Append layers as they come: each is copied into the image while the next ones are made."""
        for layer in layers:
            if layer is not None:
                self.layers.append(layer)
                if self.draft is not None:
                    self.draft.copy_in_background(self.layers)

    def make_layer(self, title: str, inputs: Sequence[object], fill: Fill, *, keep_modes: bool = False) -> Layer:
        """Return a layer of the folder that `fill` writes, from the cache where it is there."""

        key = self.compute_layer_key(title, inputs, keep_modes=keep_modes)

        def make(path: Path) -> None:
            tree = path.parent / "tree"
            tree.mkdir()
            pieces = fill(tree) or ()
            with self.audit.read_beside(key, tree, title=title):
                self.packer.pack([tree], path, keep_modes=keep_modes, pieces=pieces, title=title)

        return self._get_layer(title, key, make)

    def make_wheel_layer(self, title: str, inputs: Sequence[object], fill: Fill) -> Layer | None:
        """Return a layer of packages that are downloaded and compiled; None if it is not needed yet."""
        return self.make_layer(title, inputs, fill)

    def compute_layer_key(self, title: str, inputs: Sequence[object], *, keep_modes: bool = False) -> str:
        """Return the name of a layer in the cache: the digest of everything that decides its content."""
        return compute_key([FORMAT, title, self.packer.inputs, self.facts.sha256 if keep_modes else "", list(inputs)])

    def add_container_layer(
        self,
        title: str,
        *,
        parts: Sequence[str],
        files: Sequence[str],
        network: bool = False,
        inputs: Sequence[object] = (),
    ) -> None:
        """Append a layer that parts of install.sh make in a container, in the image as it is so far.

        `files` of the plan's image/ and `inputs` decide its content. `network`: the step downloads something.
        """
        below = [layer.entry.sha256 for layer in self.layers]
        texts = [self.spec.read_text(name) for name in (*files, "install.sh", "place")]
        key = compute_key(
            [FORMAT, "inside", title, self.packer.inputs, self.facts.sha256, below, list(parts), texts, *inputs]
        )

        def make(path: Path) -> None:
            if network and self.offline:
                raise LayeringError(f"layer '{title}' was not fetched before, and no server is asked", fix=FIX)
            image = self.base
            if self.layers:
                image = path.parent / "so-far.sif"
                write_image(self.base, self.layers, image, time=self.time)
            log_line(f"{title}: in a container")
            upper, closed = self.containers.run_parts(image, parts, work=path.parent)
            more = [*closed, *find_whiteouts(upper, image)]
            self.packer.pack([upper], path, keep_modes=True, more=more, title=title)

        layer = self._get_layer(title, key, make)
        self.append_layers([layer])
        self.facts = self.facts.apply_layer(*list_squashfs(layer.entry.path, offset=0))

    def _get_layer(self, title: str, key: str, make: Callable[[Path], None]) -> Layer:
        """Return an entry of the cache, made where it is missing; it is not removed before this build has ended."""
        started = clock.monotonic()
        self.keep_entry("layers", key)
        entry, fresh = self.store.get("layers", key, title=title, make=make)
        seconds = f"made in {clock.monotonic() - started:.1f} s" if fresh else "from the cache"
        log_line(f"layer {title}: {entry.size / 1e6:.1f} MB, {seconds}")
        return Layer(entry=entry, fresh=fresh)


C = TypeVar("C", bound=BuildContext)


@contextmanager
def open_context(
    kind: type[C], spec: Spec, *, store: Store, containers: ContainerRunner, environment: Mapping[str, str]
) -> Iterator[C]:
    """Open a build with a work folder; what it reads of the cache is kept until it ends.

    Raises LayeringError for an image that cannot be put together.
    """
    time = int(environment.get("SOURCE_DATE_EPOCH") or EPOCH)
    with ExitStack() as stack:
        stack.enter_context(store.lock_downloads())
        context = kind(
            spec=spec,
            store=store,
            packer=find_packer(zstd=spec.zstd, time=time),
            containers=containers,
            environment=environment,
            cache=store.folder.parent,
            work=stack.enter_context(store.work_folder()),
            time=time,
            stack=stack,
            pool=stack.enter_context(ThreadPoolExecutor()),
            audit=PackageAudit(spec.folder.parent, store),
        )
        try:
            yield context
        except SifError as error:
            raise LayeringError(f"the image cannot be put together: {error}") from None
