"""A conda environment as layers: the large packages apart, then all others, then Python with the environment's files.

py-rattler links the packages on this machine for the prefix in the image: nothing runs in a container. Every layer is
linked by itself, from its own packages alone, so that what it holds is decided by what names it.
"""

from __future__ import annotations

import json
import os
import re
import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..failure import LayeringError, say
from ..programs import find_program
from ..squash.pack import processors
from ..squash.pieces import Piece, below
from ..store import key_of, remove
from ..wheels import bytecode, stage
from ..wheels.kept import Owned, compile_kept
from .client import CondaClient, CondaPackage, read_packages, virtual_packages
from .found import Found, in_several, learn, owners
from .groups import groups_of

if TYPE_CHECKING:
    from ..builder import Builder
    from ..image.draft import Layer

# Where py-rattler keeps files of packages that have the same one as another. Which of them is in the environment is
# always the same; empty folders here and the order of the records are decided by a race (0.28).
LOST = "__clobbers__"
COMPILED = 1  # of what is kept of a package; another number makes all of it anew
FLAT = "build with --backend apptainer"
OTHERS = re.compile(r"pypy|graalpy")  # builds of `python` that are no CPython
THREADED = re.compile(r"_cp\d+t$")
# What of a package's own description goes into the image's record of it.
KEPT = ("build", "build_number", "constrains", "license", "license_family", "name", "noarch", "subdir", "timestamp",
        "track_features", "version")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OwnPython(bytecode.Compiler):
    """The environment's own Python, linked on this machine when there is something to compile."""

    ready: Callable[[], str]

    def compile(
        self, folder: Path, paths: Sequence[str], *, prefix: str, workers: int, out: Path, nice: int = 0
    ) -> list[Piece]:
        """Compile the files of a folder as they will lie below `prefix`, into files of `out`; raises LayeringError."""
        if not paths:
            return []
        python = bytecode.Compiler(argv=(self.ready(),), version=self.version, tag=self.tag)
        return python.compile(folder, paths, prefix=prefix, workers=workers, out=out, nice=nice)


class CondaEnvironment:
    """The conda packages of one build."""

    def __init__(self, builder: Builder, client: CondaClient) -> None:
        self.builder, self.client = builder, client
        asked = builder.spec.conda
        self.platform = str(asked["platform"])
        self.prefix = builder.facts.real(stage.PREFIX)
        if asked["packages"]:
            self.packages = read_packages(asked["packages"])
        else:
            glibc = builder.facts.glibc
            virtual = virtual_packages(machine=builder.spec.machine, glibc=glibc, cuda=str(asked["cuda"]))
            self.packages = client.solve(asked, virtual=virtual)
        self.python = _python(self.packages)
        self.minor = ".".join(self.python.version.split(".")[:2])
        self.compiler = self._compiler()
        self.provided: dict[str, str] = {}
        self._lock, self._ready = Lock(), ""

    def install(self) -> None:
        """Make the layers, and add them to the build.

        Whose file is seen of several packages that have one of the same name py-rattler decides, as on a disk: they
        have to lie in one layer. Which ones these are nobody knows before the packages are there.
        """
        store, before = self.builder.store, len(self.builder.layers)
        key = f"conda-together-{key_of([package.inputs for package in self.packages])}"
        together = store.recall("facts", key)
        found = self._make(together if isinstance(together, list) else [])
        if not isinstance(together, list):
            together = self._of_the_same_name(self.builder.layers[before:], found)
            store.remember("facts", key, together)
            if together:
                say(f"have files of the same name, and lie in one layer: {', '.join(together)}")
                del self.builder.layers[before:]
                found = self._make(together)
        for one in found:
            self.provided.update(one.provided)
        activate = sorted(name for one in found for name in one.activate)
        if activate:
            say(f"not run when the image is entered: {', '.join(activate)}; what is needed goes to variables")
        self.scripts = tuple(sorted(name for one in found for name in one.scripts))

    def _make(self, together: Sequence[str]) -> list[Found]:
        """Make the layers side by side, the large ones below the others."""
        groups = groups_of(self.packages, together=together)

        def made(title: str) -> Layer | None:
            inputs = [self.minor, self.prefix, self.compiler.inputs, [package.inputs for package in groups[title]]]
            return self.builder.made(title, inputs, lambda tree: self._fill(groups[title], tree))

        before = len(self.builder.layers)
        with ThreadPoolExecutor(max_workers=processors() + 2) as pool:
            self.builder.take(pool.map(made, groups))
        store, layers = self.builder.store, self.builder.layers[before:]
        return [learn(layer.entry, prefix=self.prefix, store=store) for layer in layers]

    def _of_the_same_name(self, layers: Sequence[Layer], found: Sequence[Found]) -> list[str]:
        """The packages in different layers that have a file of the same name, or a file where another has a folder."""
        paths, names = in_several(found), set[str]()
        for layer, one in zip(layers, found, strict=True) if paths else ():
            names |= owners(layer.entry, one, paths, prefix=self.prefix, work=self.builder.work)
        return sorted(names)

    def _fill(self, packages: Sequence[CondaPackage], tree: Path) -> list[Piece]:
        """Link some packages as they will lie in the image, and compile what is Python among them."""
        place, started = tree / self.prefix.lstrip("/"), clock.monotonic()
        place.parent.mkdir(parents=True)
        # Pure Python packages are placed by the environment's Python, which is linked with them and taken out again.
        pure = any(package.subdir == "noarch" for package in packages)
        beside = [self.python] if pure and self.python not in packages else []
        self.client.stage([*packages, *beside], place, prefix=stage.PREFIX, platform=self.platform)
        linked = clock.monotonic()
        for package in beside:
            take_out(package, place)
        files = {package.name: _read(package, place)["files"] for package in packages}
        _apart(files)
        for package in packages:
            _record(package, place)
        _tidy(place, whole=self.python in packages)
        noted = clock.monotonic()
        pieces = below(self.prefix, self._compiled(packages, files, place))
        seconds = (linked - started, noted - linked, clock.monotonic() - noted)
        say(
            "{} conda packages: linked in {:.1f} s, noted in {:.1f} s, compiled in {:.1f} s".format(
                len(packages), *seconds
            )
        )
        return pieces

    def _compiled(
        self, packages: Sequence[CondaPackage], files: Mapping[str, Sequence[str]], place: Path
    ) -> list[Piece]:
        """What is compiled of some packages, of which `files` are."""
        paths = {*bytecode.sources(place, below="lib")}
        owned = [
            Owned(
                key=key_of([COMPILED, self.compiler.inputs, self.minor, stage.PREFIX, package.inputs]),
                title=f"{package.name} {package.version} {package.build}",
                paths=tuple(path for path in files[package.name] if path in paths),
            )
            for package in packages
        ]
        # Of a file that several packages have, each has its own under another name.
        lost = {_meant(path) for rows in files.values() for path in rows if path.startswith(LOST)}
        sure = [replace(one, paths=tuple(path for path in one.paths if path not in lost)) for one in owned]
        out, nobodys = self.builder.work, paths.difference(*(one.paths for one in sure))

        def compiled(some: Sequence[str]) -> list[Piece]:
            return self.compiler.compile(place, some, prefix=stage.PREFIX, workers=processors(), out=out)

        return compile_kept(
            sure,
            more=sorted(nobodys),
            compiled=compiled,
            tag=self.compiler.tag,
            store=self.builder.store,
            work=self.builder.work,
            later=self.builder.later,
        )

    # --- Python ------------------------------------------------------------------------------------------------------

    def _compiler(self) -> bytecode.Compiler:
        """The environment's own Python where it runs on this machine's processor, else one of the same X.Y."""
        if os.uname().machine == self.builder.spec.machine:
            tag = f"cpython-{self.minor.replace('.', '')}"
            return OwnPython(argv=(), version=self.python.version, tag=tag, ready=self._own)
        found = bytecode.of_this_machine(self.minor, uv=find_program("uv") or "")
        if found is None:
            message = f"there is no Python {self.minor} here, and {self.builder.spec.machine}'s own does not run here"
            raise LayeringError(message, fix=f"install Python {self.minor}, or build on a machine of that processor")
        return found

    def _own(self) -> str:
        with self._lock:
            if not self._ready:
                folder = self.builder.work / "python"
                needed = closure(self.python, self.packages)
                self.client.stage(needed, folder, prefix=stage.PREFIX, platform=self.platform)
                path = str(folder / "bin" / f"python{self.minor}")
                found = bytecode.asked((path,), self.minor)
                if found is None or (found.version, found.tag) != (self.compiler.version, self.compiler.tag):
                    message = f"the environment's own Python {self.python.version} does not run on this machine"
                    fix = f"set RECIPE_CACHE_DIR to a folder that programs may be started from, or {FLAT}"
                    raise LayeringError(message, fix=fix)
                self._ready = path
            return self._ready


def _python(packages: Sequence[CondaPackage]) -> CondaPackage:
    found = next((package for package in packages if package.name == "python"), None)
    if found is None:
        raise LayeringError("the conda environment has no Python", fix="add 'python=3.12' to the dependencies")
    if OTHERS.search(found.build) or THREADED.search(found.build):
        raise LayeringError(f"'python' {found.version} {found.build} is no ordinary CPython", fix=FLAT)
    return found


def closure(package: CondaPackage, packages: Sequence[CondaPackage]) -> list[CondaPackage]:
    """A package with all that it needs."""
    known, todo, done = {one.name: one for one in packages}, [package], {package.name: package}
    while todo:
        for line in todo.pop().depends:
            other = known.get(line.split()[0])
            if other is not None and other.name not in done:
                done[other.name] = other
                todo.append(other)
    return [done[name] for name in sorted(done)]


def _meta(package: CondaPackage, place: Path) -> Path:
    return place / "conda-meta" / f"{package.name}-{package.version}-{package.build}.json"


def _read(package: CondaPackage, place: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(_meta(package, place).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        message = f"'{package.file_name}' is not the package that its channel says it is"
        raise LayeringError(message, fix="ask whoever keeps the channel") from None
    return found


def _meant(path: str) -> str:
    """Where a file would lie if no other package had it too."""
    return re.sub(rf"^{LOST}/[^/]+/", "", path)


def _apart(files: Mapping[str, Sequence[str]]) -> None:
    """Refuse packages of which one has a file where another has a folder: which of them wins is left to chance."""
    owners = {_meant(path): name for name, paths in files.items() for path in paths}
    for path, name in sorted(owners.items()):
        for folder in Path(path).parents:
            other = owners.get(str(folder))
            if other is not None:
                message = f"'{folder}' is a folder of the package '{name}' and a file of '{other}'"
                raise LayeringError(message, fix=f"leave out one of them, or {FLAT}")


def take_out(package: CondaPackage, place: Path) -> None:
    """Remove a package's files, and the folders that were only its own."""
    files = _read(package, place)["files"]
    for name in files:
        (place / name).unlink(missing_ok=True)
    for folder in sorted({parent for name in files for parent in Path(name).parents}, reverse=True):
        path = place / folder
        if folder.parts and path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()
    _meta(package, place).unlink()


def _record(package: CondaPackage, place: Path) -> None:
    """The image's record of a package: what conda and others read, without times and folders of this machine."""
    noted = _read(package, place)
    own = json.loads(Path(noted["extracted_package_dir"], "info", "index.json").read_text(encoding="utf-8"))
    kept = {name: own[name] for name in KEPT if name in own}
    paths = [row for row in noted["paths_data"]["paths"] if not row["_path"].startswith(f"{LOST}/")]
    document = {
        **kept,
        "depends": list(package.depends),
        "sha256": package.sha256,
        "fn": package.file_name,
        "url": package.address,
        "channel": package.address.rsplit("/", 2)[0],
        "requested_specs": [],
        "files": sorted(name for name in noted["files"] if not name.startswith(f"{LOST}/")),
        "paths_data": {**noted["paths_data"], "paths": sorted(paths, key=lambda row: str(row["_path"]))},
    }
    path = _meta(package, place)
    path.unlink()
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _tidy(place: Path, *, whole: bool) -> None:
    """Leave out what no program needs in an image, and .pyc files that are stale by the times of an image."""
    remove(place / LOST)
    history = place / "conda-meta" / "history"
    for path in (history, place / "CACHEDIR.TAG"):
        path.unlink(missing_ok=True)
    if whole:
        history.touch()  # conda and others take a folder with this file for an environment
    for path in _files(place):
        if path.suffix == ".a" or (path.suffix == ".pyc" and path.parent.name == "__pycache__"):
            path.unlink()


def _files(place: Path) -> Iterator[Path]:
    for root, _, names in os.walk(place):
        for name in names:
            yield Path(root, name)
