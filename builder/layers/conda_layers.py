"""A conda environment as layers: each large package, then all others, then Python with the environment's own files.

py-rattler links the packages on this machine for the prefix in the image: nothing runs in a container. Each layer is
linked from its own packages alone, so that its content depends only on what is in its name.
"""

from __future__ import annotations

import os
import re
import time as clock
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..sif.errors import LayeringError, log_line
from ..sif.pack import Piece, count_processors, move_below
from . import bytecode, wheel_files
from .bytecode import PackageSources, compile_packages
from .cache import compute_key
from .conda_client import CondaClient, read_packages
from .conda_packages import (
    FLAT,
    LOST,
    TOGETHER,
    LayerContents,
    check_conflicts,
    clean_prefix,
    find_original_path,
    find_owners,
    find_shared_paths,
    group_packages,
    read_layer_contents,
    read_record,
    remove_package,
    write_record,
)
from .conda_solver import CondaPackage, list_virtual_packages
from .context import BuildContext
from .image_file import Layer
from .uv import find_uv

COMPILED = 2  # version of cached .pyc files; another number compiles all of them again
LAYOUT = 2  # version of the grouping into layers; another number makes all of them again
OTHERS = re.compile(r"pypy|graalpy")  # builds of `python` other than CPython
THREADED = re.compile(r"_cp\d+t$")


class _SameNameError(LayeringError):
    """Packages with files of the same name would be in different layers, or in others than conda would choose."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(f"packages have files of the same name: {', '.join(sorted(names))}", fix=FLAT)
        self.names = frozenset(names)


class CondaEnvironment:
    """The conda packages of one build."""

    def __init__(self, context: BuildContext, client: CondaClient) -> None:
        self.context, self.client = context, client
        asked = context.spec.conda
        self.platform = str(asked["platform"])
        self.prefix = context.facts.resolve_path(wheel_files.PREFIX)
        if asked["packages"]:
            self.packages = read_packages(asked["packages"])
        else:
            glibc = context.facts.glibc
            virtual = list_virtual_packages(machine=context.spec.machine, glibc=glibc, cuda=str(asked["cuda"]))
            self.packages = client.solve(asked, virtual=virtual)
        self.python = _find_python(self.packages)
        self.minor = ".".join(self.python.version.split(".")[:2])
        self.compiler = self._find_compiler()
        self.provided: dict[str, str] = {}

    def install(self) -> None:
        """Make the layers, and append them to the image.

        If packages have a file of the same name, py-rattler decides which one wins, and that depends on all packages.
        These packages are known only after linking: they get a layer of their own.
        """
        store, before = self.context.store, len(self.context.layers)
        key = f"conda-together-{compute_key([LAYOUT, [package.inputs for package in self.packages]])}"
        known = store.recall("facts", key)
        together = {str(name) for name in known} if isinstance(known, list) else set[str]()
        while True:
            try:
                found = self._make_layers(together)
                break
            except _SameNameError as error:
                if error.names <= together:
                    raise
                together |= error.names
                log_line(f"have files of the same name, and are put into one layer: {', '.join(sorted(together))}")
                del self.context.layers[before:]
        store.remember("facts", key, sorted(together))
        for one in found:
            self.provided.update(one.provided)
        activate = sorted(name for one in found for name in one.activate)
        if activate:
            log_line(f"activation scripts are not run: {', '.join(activate)}; set what is needed by variables")
        self.scripts = tuple(sorted(name for one in found for name in one.scripts))

    def _make_layers(self, together: Collection[str]) -> list[LayerContents]:
        """Make the layers in parallel, the large ones below the others.

        Raises _SameNameError with all packages that have to be in one layer.
        """
        groups = group_packages(self.packages, together=together)

        def made(title: str) -> Layer:
            group = groups[title]
            pure = any(package.subdir == "noarch" for package in group)
            # Pure Python packages are placed by the environment's Python: it is linked with them and removed again.
            among = self.packages if title == TOGETHER else (*group, self.python) if pure else group
            inputs = [LAYOUT, self.minor, self.prefix, self.compiler.inputs, [package.inputs for package in group]]
            inputs += [[package.inputs for package in self.packages]] if title == TOGETHER else []
            return self.context.make_layer(title, inputs, lambda tree: self._fill_layer(group, tree, among=among))

        before, names = len(self.context.layers), set[str]()
        with ThreadPoolExecutor(max_workers=count_processors() + 2) as pool:
            for job in [pool.submit(made, title) for title in groups]:
                try:
                    self.context.append_layers([job.result()])
                except _SameNameError as error:
                    names |= error.names
        if names:
            raise _SameNameError(names)
        layers = self.context.layers[before:]
        found = [read_layer_contents(layer.entry, prefix=self.prefix, store=self.context.store) for layer in layers]
        paths = find_shared_paths(found)
        for layer, one in zip(layers, found, strict=True) if paths else ():
            names |= find_owners(layer.entry, one, paths, prefix=self.prefix, work=self.context.work)
        if names:
            raise _SameNameError(names)
        return found

    def _fill_layer(
        self, packages: Sequence[CondaPackage], tree: Path, *, among: Sequence[CondaPackage]
    ) -> list[Piece]:
        """Link packages as if in an environment with `among`, and compile their Python files."""
        place, started = tree / self.prefix.lstrip("/"), clock.monotonic()
        place.parent.mkdir(parents=True)
        own = {package.name for package in packages}
        staged = [*dict.fromkeys(among)]
        self.client.link_packages(staged, place, prefix=wheel_files.PREFIX, platform=self.platform)
        linked = clock.monotonic()
        files = {package.name: read_record(package, place)["files"] for package in staged}
        check_conflicts(files)
        lost = {find_original_path(path) for rows in files.values() for path in rows if path.startswith(LOST)}
        shared = {
            name for name, rows in files.items() if lost and any(find_original_path(path) in lost for path in rows)
        }
        if shared and among is not self.packages:
            raise _SameNameError(shared)
        for package in staged:
            if package.name not in own:
                remove_package(package, place)
                del files[package.name]
        for package in packages:
            write_record(package, place)
        clean_prefix(place, whole=self.python in packages)
        noted = clock.monotonic()
        pieces = move_below(self.prefix, self._compile(packages, files, place, shared=shared))
        seconds = (linked - started, noted - linked, clock.monotonic() - noted)
        log_line(
            "{} conda packages: linked in {:.1f} s, recorded in {:.1f} s, compiled in {:.1f} s".format(
                len(packages), *seconds
            )
        )
        return pieces

    def _compile(
        self,
        packages: Sequence[CondaPackage],
        files: Mapping[str, Sequence[str]],
        place: Path,
        *,
        shared: Collection[str],
    ) -> list[Piece]:
        """Compile the Python files of packages; the .pyc files are cached, but not those of packages in `shared`.

        These have files that belong to another package in this environment, and to themselves in the next one.
        """
        paths = {*bytecode.list_sources(place, below="lib")}
        sure = [
            PackageSources(
                key=compute_key([COMPILED, self.compiler.inputs, self.minor, wheel_files.PREFIX, package.inputs]),
                title=f"{package.name} {package.version} {package.build}",
                paths=tuple(path for path in files[package.name] if path in paths),
            )
            for package in packages
            if package.name not in shared
        ]
        out, unowned = self.context.work, paths.difference(*(one.paths for one in sure))

        def compile_files(some: Sequence[str]) -> list[Piece]:
            return self.compiler.compile(place, some, prefix=wheel_files.PREFIX, workers=count_processors(), out=out)

        return compile_packages(
            sure,
            more=sorted(unowned),
            compile_files=compile_files,
            tag=self.compiler.tag,
            store=self.context.store,
            work=self.context.work,
            run_in_background=self.context.run_in_background,
        )

    # --- Python ------------------------------------------------------------------------------------------------------

    def _find_compiler(self) -> bytecode.Compiler:
        """Return a Python of the environment's X.Y: of this machine, else the environment's own in a container."""
        context, uv = self.context, find_uv() or ""
        found = bytecode.find_local_compiler(self.minor, uv=uv)
        if found is not None:
            return found
        if os.uname().machine != context.spec.machine:
            message = f"there is no Python {self.minor} here, and {context.spec.machine}'s own does not run here"
            raise LayeringError(message, fix=f"install Python {self.minor}, or build on a machine of that processor")
        folder = context.work / "python"
        needed = collect_dependencies(self.python, self.packages)
        self.client.link_packages(needed, folder, prefix=wheel_files.PREFIX, platform=self.platform)
        return bytecode.find_image_compiler(
            self.minor,
            runtime=context.containers.runtime,
            base=context.base,
            python=f"bin/python{self.minor}",
            own=folder,
        )


def _find_python(packages: Sequence[CondaPackage]) -> CondaPackage:
    found = next((package for package in packages if package.name == "python"), None)
    if found is None:
        raise LayeringError("the conda environment has no Python", fix="add 'python=3.12' to the dependencies")
    if OTHERS.search(found.build) or THREADED.search(found.build):
        raise LayeringError(f"'python' {found.version} {found.build} is not an ordinary CPython", fix=FLAT)
    return found


def collect_dependencies(package: CondaPackage, packages: Sequence[CondaPackage]) -> list[CondaPackage]:
    """Return a package with everything that it depends on, sorted by name."""
    known, todo, done = {one.name: one for one in packages}, [package], {package.name: package}
    while todo:
        for line in todo.pop().depends:
            other = known.get(line.split()[0])
            if other is not None and other.name not in done:
                done[other.name] = other
                todo.append(other)
    return [done[name] for name in sorted(done)]
