"""Wheels as layers: resolved and unpacked on this machine; packages without a wheel are installed in a container."""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ..sif.errors import LayeringError, log_line
from ..sif.pack import Piece, count_processors, move_below
from . import bytecode, wheel_files
from .bytecode import PackageSources, compile_packages
from .cache import compute_key
from .context import BuildContext, Fill
from .copies import merge
from .image_file import Layer
from .uv import make_uv_settings, require_uv
from .wheel_checks import check_requested, list_requested
from .wheels import Group, NeedsSourcesError, Resolver, name_platform, normalize_name, resolve

if TYPE_CHECKING:  # loaded where there is a conda environment
    from .conda_layers import CondaEnvironment

COMPILED = 2  # version of cached .pyc files; another number compiles all of them again
LIGHT = "packages"  # the layer of all packages without one of their own
NICE = 10  # for light packages while heavy ones are compiled: large layers should be ready first
REQUIREMENTS = ("requirements-torch.txt", "requirements.txt", "requirements-commits.txt")
PACKAGES = (
    *REQUIREMENTS,
    "constraints.txt",
    "compiled.txt",
    "tools.txt",
    "pip.txt",
    "lock",
    "protected.txt",
    "protect.py",
    "python-version",
)


def add_wheel_layers(context: BuildContext, *, conda: CondaEnvironment | None) -> None:
    """Append the recipe's packages of pip: wheels on this machine, the rest in a container."""
    spec, facts = context.spec, context.facts
    wanted = [name for name in REQUIREMENTS if spec.read_text(name)]
    if conda and not wanted:
        return
    parts = ("torch", "packages") if conda else ("python", "torch", "packages")
    if spec.place == "base" or not facts.minor:
        if wanted:
            context.add_container_layer("packages", parts=parts, files=PACKAGES, network=True)
        return
    if spec.python and spec.python != facts.minor:
        message = f"the recipe requires Python {spec.python}, the base image has {facts.minor}"
        raise LayeringError(message, fix=f"write python={facts.minor}, or use a base image with Python {spec.python}")
    uv = require_uv()
    resolver = Resolver(
        uv=uv,
        minor=facts.minor,
        platform=name_platform(facts.machine, facts.glibc),
        work=context.work,
        environment=make_uv_settings(context.environment, cache=context.cache),
        provided=conda.provided if conda else {},
    )
    before = len(context.layers)
    try:
        with Wheels(context, resolver, conda=conda) as wheels:
            sources = wheels.install(ask=bool(wanted))
    except NeedsSourcesError as reason:
        log_line(f"{reason}: the packages are installed inside the base image")
        del context.layers[before:]
        sources = True
    if sources:
        context.add_container_layer("packages", parts=parts, files=PACKAGES, network=True)


Part = tuple[Group, ...]  # the packages of one layer


class Wheels:
    """The layers of wheels of one build, made in parallel.

    They are started with the versions in uv's cache while the indexes are asked: a layer is named by its content, and
    one that is not needed in the end stays in the cache.
    """

    def __init__(self, context: BuildContext, resolver: Resolver, *, conda: CondaEnvironment | None) -> None:
        self.context, self.facts, self.resolver, self.conda = context, context.facts, resolver, conda
        self.prefix = self.facts.resolve_path(wheel_files.PREFIX)
        self._heavy = False  # a heavy package is being made
        self._requested = list_requested(self.context.spec.read_text(name) for name in REQUIREMENTS[:2])
        self._numbers = count()  # groups are unpacked in parallel
        self._jobs: dict[Part, Future[Layer | None]] = {}
        self._wanted: frozenset[Part] | None = None
        self._known, self._lock = threading.Event(), threading.Lock()

    def __enter__(self) -> Wheels:
        self._pool = ThreadPoolExecutor(max_workers=64)
        self._compiler = self._pool.submit(self._find_compiler)
        self._pool.submit(lambda: self.context.packer.form)  # measured before it is needed
        return self

    def __exit__(self, *_: object) -> None:
        self._set_wanted(())  # after a failure no layer is needed any more
        self._pool.shutdown()

    @property
    def compiler(self) -> bytecode.Compiler:
        """A Python like the image's."""
        return self._compiler.result()

    def install(self, *, ask: bool) -> bool:
        """Append the layers of the recipe's wheels; return True if the rest has to be installed in a container."""
        started, folder = clock.monotonic(), self.context.spec.folder
        if ask and not self.resolver.offline:
            self._pool.submit(
                self._start_from_cache, self.resolver.make_cached_resolver(self.context.work / "last-time")
            )
        groups, sources = resolve(folder, self.resolver) if ask else ((), False)
        log_line(f"resolved {sum(len(group.pins) for group in groups)} packages in {clock.monotonic() - started:.1f} s")
        self.context.packages += wheel_files.list_pins(groups)
        if not sources:
            present = {pin.name for group in groups for pin in group.pins}
            check_requested(
                self._requested, present=present | {normalize_name(name) for name in self.resolver.provided}
            )
        parts = self._split_parts(groups, last=not sources)
        self._set_wanted(parts)
        if self._jobs.keys() - set(parts):
            log_line("dependencies changed: layers started from the cache are not used")
        self.context.append_layers(job.result() for job in self._start_layers(parts))
        return sources

    def _start_from_cache(self, resolver: Resolver) -> None:
        """Start the layers of the packages in uv's cache."""
        with suppress(LayeringError):
            groups, sources = resolve(self.context.spec.folder, resolver)
            self._start_layers(self._split_parts(groups, last=not sources))

    def _split_parts(self, groups: Sequence[Group], *, last: bool) -> tuple[Part, ...]:
        """Split groups into layers; the environment's own files are in the last one, with the light packages."""
        heavy = [(group,) for group in groups if group.title != LIGHT]
        light = tuple(group for group in groups if group.title == LIGHT)
        return (*heavy, light) if last and (light or self.conda is None) else tuple(heavy)

    def _start_layers(self, parts: Sequence[Part]) -> list[Future[Layer | None]]:
        with self._lock:
            for part in parts:
                if part not in self._jobs:
                    self._jobs[part] = self._pool.submit(self._make_layer, part)
            return [self._jobs[part] for part in parts]

    def _set_wanted(self, parts: Sequence[Part]) -> None:
        with self._lock:
            if self._wanted is None:
                self._wanted = frozenset(parts)
        self._known.set()

    def _check_wanted(self, part: Part) -> None:
        if self._wanted is not None and part not in self._wanted:
            raise LayeringError("the packages have changed")

    def _wait_until_wanted(self, part: Part) -> None:
        """Wait until the packages are resolved: nothing is downloaded for a layer that is not needed."""
        self._known.wait()
        self._check_wanted(part)

    def _make_layer(self, part: Part) -> Layer | None:
        self._check_wanted(part)
        title = part[0].title if part else LIGHT
        if title != LIGHT:
            inputs = self._list_inputs(part)
            return self._make(title, part, inputs, lambda tree: self._fill_part(part, tree, heavy=True))

        def fill(tree: Path) -> list[Piece]:
            pieces, place = self._fill_part(part, tree), tree / self.prefix.lstrip("/")
            place.mkdir(parents=True, exist_ok=True)
            if self.conda is None:
                wheel_files.write_environment(place, python=self.facts.python, minor=self.facts.minor)
            return pieces

        return self._make(title, part, [*self._list_inputs(part), self.facts.python], fill)

    def _make(self, title: str, part: Part, inputs: list[object], fill: Fill) -> Layer | None:
        """Make a layer that the audit reads wheel by wheel."""
        place: list[object] = [self.facts.minor, self.facts.machine, self.facts.glibc]
        key = self.context.compute_layer_key(title, inputs)
        self.context.audit.note_wheels(key, [pin for group in part for pin in group.pins], place=place)
        return self.context.make_wheel_layer(title, inputs, fill)

    def _fill_part(self, part: Part, tree: Path, *, heavy: bool = False) -> list[Piece]:
        """Unpack and compile the packages of one layer."""
        self._heavy = self._heavy or heavy
        place = tree / self.prefix.lstrip("/")
        return move_below(self.prefix, [piece for group in part for piece in self._fill_group(group, place, part)])

    def _find_compiler(self) -> bytecode.Compiler:
        if self.conda:
            return self.conda.compiler
        return bytecode.find_compiler(
            self.facts.minor,
            uv=self.resolver.uv,
            runtime=self.context.containers.runtime,
            base=self.context.base,
            python=self.facts.python,
        )

    def _list_inputs(self, part: Part) -> list[object]:
        """Return what decides the content of a layer."""
        pins = [pin.inputs for group in part for pin in group.pins]
        return [self.facts.minor, self.facts.machine, self.facts.glibc, self.prefix, self.compiler.inputs, pins]

    def _fill_group(self, group: Group, tree: Path, part: Part) -> list[Piece]:
        """Unpack and compile a group; .pyc files are cached by package."""
        number = next(self._numbers)
        place = tree if not tree.exists() else self.resolver.work / f"stage-{number}"
        site = wheel_files.install_wheels(
            group,
            place,
            resolver=self.resolver,
            minor=self.facts.minor,
            number=f"pins-{number}",
            online=lambda: self._wait_until_wanted(part),
            requested=self._requested,
        )
        self._check_wanted(part)
        nice = NICE if self._heavy and group.title == LIGHT else 0
        made = self._compile_group(group, place, site, nice=nice)
        self._check_wanted(part)
        if place != tree:
            merge(place, tree)
        return made

    def _compile(self, place: Path, paths: Sequence[str], *, nice: int) -> list[Piece]:
        """Compile files of a folder on every core."""
        return self.compiler.compile(
            place, paths, prefix=wheel_files.PREFIX, workers=count_processors(), out=self.context.work, nice=nice
        )

    def _compile_group(self, group: Group, tree: Path, site: Path, *, nice: int) -> list[Piece]:
        """Take cached .pyc files, and compile all missing ones in one run."""
        files = wheel_files.list_sources(site, tree)
        owned = [
            PackageSources(
                key=compute_key([COMPILED, self.compiler.inputs, wheel_files.PREFIX, pin.inputs]),
                title=f"{pin.name} {pin.version}",
                paths=tuple(path for path in files.get(pin.name, []) if bytecode.is_imported(path)),
            )
            for pin in group.pins
        ]
        return compile_packages(
            owned,
            compile_files=lambda paths: self._compile(tree, paths, nice=nice),
            tag=self.compiler.tag,
            store=self.context.store,
            work=self.context.work,
            run_in_background=self.context.run_in_background,
        )
