"""A build under way: what is in the cache is taken, what is missing is made side by side."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..sif.errors import LayeringError, say, writing
from ..sif.pack import Packer, Piece, find_packer
from ..sif.sif import SifError, read_sif
from ..sif.squashfs import SquashfsError, Superblock, read_superblock
from . import wheel_files
from .assemble import Draft, Layer, assemble, complete
from .base_download import base_image
from .base_image import FIX, BaseFacts, learn, listed
from .cache import Store, key_of
from .container import Containers, whiteouts
from .metadata import METADATA, inspected, metadata, own_files, prove, tree_digest
from .spec import FIX as FIX_OFFLINE
from .spec import Spec, is_offline
from .wheel_layers import install
from .wheels import settings

if TYPE_CHECKING:  # loaded where there is a conda environment
    from .conda import CondaClient
    from .conda_layers import CondaEnvironment

FORMAT = 2  # of what is in a layer; another number makes all of them anew
EPOCH = 315532800  # 1980-01-01, the oldest time that every archive format can hold


@dataclass(kw_only=True)
class Builder:
    """One build under way."""

    spec: Spec
    store: Store
    packer: Packer
    containers: Containers
    environment: Mapping[str, str]
    cache: Path
    work: Path
    time: int
    stack: ExitStack
    beside: ThreadPoolExecutor
    base: Path = Path()
    facts: BaseFacts = field(default_factory=lambda: BaseFacts(sha256="", machine=""))
    layers: list[Layer] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    client: CondaClient | None = None
    conda: CondaEnvironment | None = None
    draft: Draft = field(init=False)  # begun when the base image is there
    jobs: list[Future[object]] = field(default_factory=list)

    @property
    def offline(self) -> bool:
        """Whether no server may be asked."""
        return is_offline(self.environment)

    def begin(self) -> None:
        """Have the base image here, and know it; raises LayeringError and OSError."""
        if self.spec.place == "conda":
            from .conda import find_client

            found = settings(self.environment, cache=self.cache)
            folder = self.cache / "conda"
            self.client = find_client(work=self.work, cache=folder, environment=found, offline=self.offline)
        self.base = base_image(
            self.spec.base,
            store=self.store,
            runtime=self.containers.runtime,
            work=self.work,
            packer=self.packer,
            offline=self.offline,
            hold=partial(self.hold, "bases"),
        )
        self.facts = learn(self.base, store=self.store)
        if self.facts.machine != self.spec.machine:
            base = self.spec.base
            message = f"the base image '{base}' is for {self.facts.machine}, and the site has {self.spec.machine}"
            fix = f"name an image for {self.spec.machine} with --base or container.base, or leave that out"
            raise LayeringError(message, fix=fix)
        self.packer = self.packer.like(root_of(self.base))

    def gather(self) -> None:
        """Layers of all that comes from somewhere else; raises LayeringError and OSError."""
        if self.spec.text("system.txt"):
            self.inside("system", parts=("system",), files=("system.txt",), asks=True)
        if self.client:
            self.link(self.client)
        install(self)

    def build(self, target: Path) -> None:
        """Make the image; raises LayeringError and OSError."""
        self.begin()
        self.draft = self.stack.enter_context(Draft(self.base, target))
        self.draft.prepare(())
        self.gather()
        if (self.spec.folder / "root").is_dir():
            self.add("files", [tree_digest(self.spec.folder / "root")], self.own(own_files), keep_modes=True)
        if self.spec.text("run.sh"):
            parts = ("python", "run") if self.spec.place == "base" else ("run",)
            self.inside("run", parts=parts, files=("run.sh", "protected.txt", "protect.py"))
        # The files are asked while the image is put together: it gets its name when both have ended.
        self.later(partial(self.prove, tuple(self.layers)))
        inputs = [self.facts.labels, self.facts.runscript, *[self.spec.text(name) for name in METADATA]]
        self.add("recipe", inputs, self.own(metadata))
        named = [(layer.entry.title, layer.entry.sha256) for layer in self.layers]
        says = inspected(named, spec=self.spec, facts=self.facts)
        with writing(target):
            complete(self.draft, self.layers, time=self.time, metadata=says)
        for job in self.jobs:
            job.result()

    def prove(self, layers: Sequence[Layer]) -> None:
        """Ask the files for their torch, before the image gets its name."""
        own = f"{self.facts.real(wheel_files.PREFIX)}/lib/python{self.facts.minor}/site-packages/torch"
        ends = ("/site-packages/torch", "/dist-packages/torch")
        folders = [path for path in self.facts.folders if path.endswith(ends)]
        places = [(self.base, read_sif(self.base).system.offset)]
        places += [(layer.entry.path, 0) for layer in layers if layer.entry.title not in ("system", "files")]
        prove(
            places,
            folders=sorted({own, *folders}),
            folder=self.spec.folder,
            work=self.work,
            minor=self.facts.minor,
        )

    def later(self, job: Callable[[], object]) -> None:
        """Do something beside all that follows; what goes wrong in it is raised at the end of the build."""
        self.jobs.append(self.beside.submit(job))

    # --- layers ------------------------------------------------------------------------------------------------------

    def add(
        self, title: str, inputs: Sequence[object], fill: Callable[[Path], None], *, keep_modes: bool = False
    ) -> None:
        """A layer that `fill` writes into a folder that stands for the root of the image."""
        self.take([self.made(title, inputs, fill, keep_modes=keep_modes)])

    def take(self, layers: Iterable[Layer | None]) -> None:
        """Add layers as they come: each is copied into the image while the next ones are made."""
        for layer in layers:
            if layer is not None:
                self.layers.append(layer)
                self.draft.prepare(self.layers)

    def own(self, write: Callable[..., None]) -> Callable[[Path], None]:
        """A function of content.py as one that fills a folder."""
        return lambda tree: write(tree, spec=self.spec, facts=self.facts)

    def made(
        self,
        title: str,
        inputs: Sequence[object],
        fill: Callable[[Path], Sequence[Piece] | None],
        *,
        keep_modes: bool = False,
    ) -> Layer:
        """A layer from the cache, or made now."""
        key = self.key(title, inputs, keep_modes=keep_modes)

        def make(path: Path) -> None:
            tree = path.parent / "tree"
            tree.mkdir()
            pieces = fill(tree) or ()
            self.packer.pack([tree], path, keep_modes=keep_modes, pieces=pieces)

        return self.layer(title, key, make)

    def of_wheels(self, title: str, inputs: Sequence[object], fill: Callable[[Path], Sequence[Piece]]) -> Layer | None:
        """A layer of what is downloaded and compiled; None where it is not wanted yet."""
        return self.made(title, inputs, fill)

    def key(self, title: str, inputs: Sequence[object], *, keep_modes: bool = False) -> str:
        """The name of a layer: the digest of all that decides what is in it."""
        return key_of([FORMAT, title, self.packer.inputs, self.facts.sha256 if keep_modes else "", list(inputs)])

    def layer(self, title: str, key: str, make: Callable[[Path], None]) -> Layer:
        """An entry of the cache that stays until this build has ended."""
        started = clock.monotonic()
        self.hold("layers", key)
        entry, fresh = self.store.get("layers", key, title=title, make=make)
        seconds = f"made in {clock.monotonic() - started:.1f} s" if fresh else "from the cache"
        say(f"layer {title}: {entry.size / 1e6:.1f} MB, {seconds}")
        return Layer(entry=entry, fresh=fresh)

    def hold(self, kind: str, key: str) -> None:
        """No one removes this entry of the cache until this build has ended."""
        self.stack.enter_context(self.store.held(kind, key))

    def inside(self, title: str, *, parts: Sequence[str], files: Sequence[str], asks: bool = False) -> None:
        """A layer that a container has to make, in the image as it is so far; `asks` says that it needs servers."""
        below = [layer.entry.sha256 for layer in self.layers]
        texts = [self.spec.text(name) for name in (*files, "install.sh", "place")]
        key = key_of([FORMAT, "inside", title, self.packer.inputs, self.facts.sha256, below, list(parts), texts])

        def make(path: Path) -> None:
            if asks and self.offline:
                raise LayeringError(f"layer '{title}' was not fetched before, and no server is asked", fix=FIX_OFFLINE)
            image = self.base
            if self.layers:
                image = path.parent / "so-far.sif"
                assemble(self.base, self.layers, image, time=self.time)
            say(f"{title}: in a container")
            upper = self.containers.layer(image, parts, work=path.parent)
            self.packer.pack([upper], path, keep_modes=True, more=whiteouts(upper, image))

        layer = self.layer(title, key, make)
        self.take([layer])
        self.facts = self.facts.over(*listed(layer.entry.path, offset=0))

    # --- packages ----------------------------------------------------------------------------------------------------

    def link(self, client: CondaClient) -> None:
        """conda's packages, and what they want to run when they are installed."""
        from .conda_layers import CondaEnvironment

        self.conda = CondaEnvironment(self, client)
        self.packages += [f"{one.name}={one.version}={one.build}" for one in self.conda.packages]
        self.conda.install()
        self.facts = replace(
            self.facts, minor=self.conda.minor, python=f"{wheel_files.PREFIX}/bin/python{self.conda.minor}"
        )
        if self.conda.scripts:
            say(f"run their own scripts: {', '.join(self.conda.scripts)}")
            self.inside("conda-scripts", parts=("links",), files=())


B = TypeVar("B", bound=Builder)


@contextmanager
def opened(
    kind: type[B], spec: Spec, *, store: Store, containers: Containers, environment: Mapping[str, str]
) -> Iterator[B]:
    """A build with a folder to work in; what it reads of the cache stays until it ends."""
    time = int(environment.get("SOURCE_DATE_EPOCH") or EPOCH)
    with ExitStack() as stack:
        stack.enter_context(store.downloads())
        builder = kind(
            spec=spec,
            store=store,
            packer=find_packer(zstd=spec.zstd, time=time),
            containers=containers,
            environment=environment,
            cache=store.folder.parent,
            work=stack.enter_context(store.work()),
            time=time,
            stack=stack,
            beside=stack.enter_context(ThreadPoolExecutor()),
        )
        try:
            yield builder
        except SifError as error:
            raise LayeringError(f"the image cannot be put together: {error}") from None


def root_of(image: Path) -> Superblock:
    """How the root file system of an image is packed."""
    try:
        with image.open("rb") as file:
            return read_superblock(file, offset=read_sif(image).system.offset)
    except SquashfsError as error:
        raise LayeringError(f"the root file system of '{image}' cannot be read: {error}", fix=FIX) from None
