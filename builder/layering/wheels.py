"""Wheels as layers: resolved and unpacked on this machine; what has no wheel is installed inside the image."""

from __future__ import annotations

import os
import shutil
import time as clock
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from . import bytecode, stage
from .failure import LayeringError, say
from .pack import processors
from .pieces import Piece, below
from .programs import needed_program
from .resolve import Group, NeedsSourcesError, Resolver, platform_of, resolve, settings
from .store import key_of

if TYPE_CHECKING:
    from .assemble import Layer
    from .build import Builder

COMPILED = 2  # of what is kept of a wheel; another number makes all of it anew
NICE = 5  # of those who compile light packages beside heavy ones: what is large is to be ready first
REQUIREMENTS = ("requirements-torch.txt", "requirements.txt", "requirements-commits.txt")
PACKAGES = (
    *REQUIREMENTS,
    "constraints.txt",
    "compiled.txt",
    "tools.txt",
    "lock",
    "protected.txt",
    "protect.py",
    "python-version",
)


def install(builder: Builder) -> None:
    """The recipe's packages of pip: wheels on this machine, the rest inside the image."""
    spec, facts = builder.spec, builder.facts
    wanted = [name for name in REQUIREMENTS if spec.text(name)]
    if builder.conda and not wanted:
        return
    parts = ("torch", "packages") if builder.conda else ("python", "torch", "packages")
    if spec.place == "base" or not facts.minor:
        if wanted:
            builder.inside("packages", parts=parts, files=PACKAGES)
        return
    if spec.python and spec.python != facts.minor:
        message = f"the recipe asks for Python {spec.python}, the base image has {facts.minor}"
        raise LayeringError(message, fix="use another base image, or build with --backend apptainer")
    uv = needed_program("uv", fix="install it (`pip install uv`), or build with --backend apptainer")
    resolver = Resolver(
        uv=uv,
        minor=facts.minor,
        platform=platform_of(facts.machine, facts.glibc),
        work=builder.work,
        environment=settings(builder.environment, cache=builder.cache),
        provided=builder.conda.provided if builder.conda else {},
    )
    started = clock.monotonic()
    groups, sources = resolve(spec.folder, resolver) if wanted else ((), False)
    say(f"resolved {sum(len(group.pins) for group in groups)} packages in {clock.monotonic() - started:.1f} s")
    builder.packages += stage.names_of(groups)
    before = len(builder.layers)
    try:
        Wheels(builder, resolver).unpack(groups, last=not sources)
    except NeedsSourcesError as reason:
        say(f"{reason}: the packages are installed inside the base image")
        del builder.layers[before:]
        sources = True
    if sources:
        builder.inside("packages", parts=parts, files=PACKAGES)


class Wheels:
    """The layers of wheels of one build."""

    def __init__(self, builder: Builder, resolver: Resolver) -> None:
        self.builder, self.facts, self.resolver = builder, builder.facts, resolver
        self.compiler = self._compiler()
        self._heavy = False  # a heavy package is being made
        self._numbers = count()  # groups are unpacked side by side

    def unpack(self, groups: Sequence[Group], *, last: bool) -> None:
        """Layers of wheels, side by side; the environment's own files go with the light ones."""
        rows = [group for group in groups if group.title != "packages"]
        light = [group for group in groups if group.title == "packages"]
        prefix = self.facts.real(stage.PREFIX)

        def heavy(group: Group) -> Layer:
            def fill(tree: Path) -> list[Piece]:
                self._heavy = True
                return below(prefix, self.fill(group, tree / prefix.lstrip("/")))

            return self.builder.made(group.title, self.inputs([group], prefix), fill)

        def rest() -> Layer:
            def fill(tree: Path) -> list[Piece]:
                place = tree / prefix.lstrip("/")
                made = [piece for group in light for piece in self.fill(group, place, kept=True)]
                place.mkdir(parents=True, exist_ok=True)
                if self.builder.conda is None:
                    stage.environment_files(
                        place, python=self.facts.python, minor=self.facts.minor, system_packages=False
                    )
                return below(prefix, made)

            return self.builder.made("packages", [*self.inputs(light, prefix), self.facts.python], fill)

        jobs: list[Callable[[], Layer]] = [(lambda group=group: heavy(group)) for group in rows]  # type: ignore[misc]
        if last and (light or self.builder.conda is None):
            jobs.append(rest)
        with ThreadPoolExecutor(max_workers=max(len(jobs), 1)) as pool:
            self.builder.layers += list(pool.map(lambda job: job(), jobs))

    def _compiler(self) -> bytecode.Compiler:
        """A Python like the image's."""
        if self.builder.conda:
            return self.builder.conda.compiler
        return bytecode.find_compiler(
            self.facts.minor,
            uv=self.resolver.uv,
            runtime=self.builder.containers.runtime,
            base=self.builder.base,
            python=self.facts.python,
        )

    def inputs(self, groups: Sequence[Group], prefix: str) -> list[object]:
        """What decides a layer of wheels."""
        pins = [pin.inputs for group in groups for pin in group.pins]
        return [self.facts.minor, self.facts.machine, self.facts.glibc, prefix, self.compiler.inputs, pins]

    def fill(self, group: Group, tree: Path, *, kept: bool = False) -> list[Piece]:
        """Unpack and compile a group; with `kept` what was compiled is kept by wheel for the next time."""
        number = next(self._numbers)
        place = tree if not tree.exists() else self.resolver.work / f"stage-{number}"
        site = stage.install(group, place, resolver=self.resolver, minor=self.facts.minor, number=f"pins-{number}")
        if kept:
            made = self.compile_kept(group, place, site)
        else:
            made = self.compile(place, bytecode.sources(place, below="lib"))
        if place != tree:
            _merge(place, tree)
        return made

    def compile(self, place: Path, paths: Sequence[str], *, nice: int = 0) -> list[Piece]:
        """Compile files of a folder on every core."""
        return self.compiler.compile(
            place, paths, prefix=stage.PREFIX, workers=processors(), out=self.builder.work, nice=nice
        )

    def compile_kept(self, group: Group, tree: Path, site: Path) -> list[Piece]:
        """Compile wheel by wheel, but all that are missing in one go; what was compiled before is taken again."""
        files = stage.owners(site, tree)
        often = Counter(path for paths in files.values() for path in paths)
        shared = {
            path for path, count in often.items() if count > 1 and bytecode.used(path)
        }  # whose it is, is not sure
        store, pieces = self.builder.store, list[Piece]()
        missing: dict[str, tuple[str, list[str]]] = {}
        for pin in group.pins:
            paths = [path for path in files.get(pin.name, []) if bytecode.used(path) and path not in shared]
            if not paths:
                continue
            key = key_of([COMPILED, self.compiler.inputs, stage.PREFIX, pin.inputs])
            entry = store.look("compiled", key)
            own = self.builder.work / f"{key}.pycs"  # nobody takes it away while it is read
            if entry is not None and store.intact(entry) and _linked(entry.path, own):
                pieces += bytecode.kept(own)
            else:
                missing[key] = (f"{pin.name} {pin.version}", paths)
        paths = sorted({path for _, paths in missing.values() for path in paths} | shared)
        made = {piece.path: piece for piece in self.compile(tree, paths, nice=NICE if self._heavy else 0)}
        for key, (title, paths) in missing.items():
            names = [bytecode.compiled_path(path, self.compiler.tag) for path in paths]
            self._keep(key, title, [made[name] for name in names if name in made])
        return [*pieces, *made.values()]

    def _keep(self, key: str, title: str, pieces: Sequence[Piece]) -> None:
        """Keep what was compiled of one wheel."""
        self.builder.store.get("compiled", key, title=title, make=lambda target: bytecode.save(pieces, target))


def _linked(source: Path, target: Path) -> bool:
    """The same file by another name, a copy where that cannot be; False where it is gone."""
    try:
        target.unlink(missing_ok=True)
        os.link(source, target)
    except FileNotFoundError:
        return False
    except OSError:
        shutil.copyfile(source, target)
    return True


def _merge(source: Path, target: Path) -> None:
    """Move the files of one folder into another that may have the same folders."""
    for root, folders, names in os.walk(source):
        place = target / os.path.relpath(root, source)
        place.mkdir(parents=True, exist_ok=True)
        for name in [*names, *[name for name in folders if Path(root, name).is_symlink()]]:
            Path(root, name).replace(place / name)
