""".pyc files of a staged environment: compiled in parallel, cached by package."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..sif.errors import LayeringError
from ..sif.pack import Piece, sort_pieces, write_pieces
from ..sif.programs import ask, clean_environment, find_system_program
from ..sif.tree import FILE, FOLDER, walk
from .cache import Store

WORKER = Path(__file__).with_name("bytecode_worker.py")
# For glibc in the workers: freed memory is kept for the next file, not returned to the system.
MEMORY = "glibc.malloc.top_pad=67108864:glibc.malloc.trim_threshold=1073741824:glibc.malloc.mmap_threshold=1073741824"
# Test suites and benchmarks of packages, and the parts of torch.testing that torch itself never imports: 6 % of what an
# environment with torch has to compile. A program that imports such a module compiles it in memory.
UNUSED = re.compile(
    r"/(?:tests|benchmarks)/"
    r"|/torch/testing/_internal/(?:generated/|opinfo/definitions/|(?:.+/)?\w+_test\.py$"
    r"|common_(?:methods_invocations|modules|nn|quantization)\.py$)"
)


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A Python of the image's version: a program of this machine, or the base image's own in a container."""

    argv: tuple[str, ...]
    version: str  # X.Y.Z
    tag: str  # cpython-311
    binds: int = 0  # index of its options for binds in `argv`, if it runs in a container

    @property
    def inputs(self) -> list[object]:
        """What decides the bytes of a .pyc."""
        return [self.version, self.tag]

    def compile(
        self, folder: Path, paths: Sequence[str], *, prefix: str, workers: int, out: Path, nice: int = 0
    ) -> list[Piece]:
        """Compile files of a folder for their place below `prefix`, into files of `out`; raises LayeringError."""
        if not paths:
            return []
        argv, seen = [*self.argv], str(folder)
        worker, place = str(WORKER), tempfile.mkdtemp(prefix="pyc-", dir=out)
        told = place
        if self.binds:
            shown = {f"{folder}": "/mnt", str(WORKER): "/media/worker.py", place: "/media/out"}
            binds = [f"{source}:{target}{'' if source == place else ':ro'}" for source, target in shown.items()]
            argv[self.binds : self.binds] = [word for bind in binds for word in ("--bind", bind)]
            seen, worker, told = shown.values()
        done = subprocess.run(
            [*argv, "-I", "-S", "-B", worker, seen, prefix, str(workers), str(nice), told],
            input="".join(f"{path}\n" for path in paths),
            env=clean_environment({"PYTHONHASHSEED": "0", "GLIBC_TUNABLES": MEMORY}),
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
        if done.returncode:
            print(done.stderr[-2000:], flush=True)
            raise LayeringError(f"Python {self.version} could not compile the packages: exit code {done.returncode}")
        made = [piece for number in range(workers) for piece in _read_index(Path(place, str(number)))]
        asked_for = {name_compiled_file(path, self.tag) for path in paths}
        if not asked_for.issuperset(piece.path for piece in made):
            raise LayeringError(f"Python {self.version} has written other files than it was given to compile")
        return made


def _read_index(stem: Path) -> Iterator[Piece]:
    """Yield what one worker has written."""
    offset, data, index = 0, stem.with_suffix(".data"), stem.with_suffix(".index")
    for path in (data, index):
        if not stat.S_ISREG(path.lstat().st_mode):  # a container may have left a link to anything
            raise LayeringError(f"'{path}' is no file")
    for line in os.fsdecode(index.read_bytes()).split("\n")[:-1]:
        size, _, name = line.partition(" ")
        yield Piece(path=name, source=data, offset=offset, size=int(size))
        offset += int(size)


ASK = "import sys, platform; print(platform.python_version(), sys.implementation.cache_tag)"


# How a Python of an image runs: it sees the sources, and can write the .pyc files alone.
ALONE = ("exec", "--containall", "--no-home", "--no-mount", "tmp,cwd")


def find_compiler(minor: str, *, uv: str, runtime: str, base: Path, python: str, own: Path | None = None) -> Compiler:
    """Return a Python X.Y that is not the recipe's: of this machine, else the image's own in a container.

    `own` is a folder with a Python at `python` that replaces the image's. Raises LayeringError.
    """
    found = find_local_compiler(minor, uv=uv)
    return found or find_image_compiler(minor, runtime=runtime, base=base, python=python, own=own)


def find_image_compiler(minor: str, *, runtime: str, base: Path, python: str, own: Path | None = None) -> Compiler:
    """Return the image's own Python X.Y, or that of a folder, run in a container; raises LayeringError."""
    shown = ("--bind", f"{own}:/media/own:ro") if own else ()
    # No network, if users may have network name spaces of their own.
    for network in (("--net", "--network", "none"), ()):
        words = (runtime, *ALONE, *network, *shown)
        found = _probe_python((*words, str(base), f"/media/own/{python}" if own else python), minor)
        if found is not None:
            return replace(found, binds=len(words))
    whose = "the environment's own" if own else "the base image's own"
    raise LayeringError(f"there is no Python {minor} here, and {whose} does not run", fix=f"install Python {minor}")


def find_local_compiler(minor: str, *, uv: str) -> Compiler | None:
    """Return a Python X.Y: this one, one on PATH, or one that uv manages; None if there is none."""
    if sys.implementation.name == "cpython" and f"{sys.version_info[0]}.{sys.version_info[1]}" == minor:
        tag = sys.implementation.cache_tag or ""
        return Compiler(argv=(sys.executable,), version=platform.python_version(), tag=tag)
    own = find_system_program(f"python{minor}")
    found = _probe_python((own,), minor) if own else None
    if found is None and uv:
        managed = _find_uv_python(uv, minor)
        found = _probe_python((managed,), minor) if managed else None
    return found


def _find_uv_python(uv: str, minor: str) -> str | None:
    code, out, _ = ask([uv, "python", "find", "--offline", "--no-project", "--system", minor])
    return out.strip() or None if code == 0 else None  # it fails if there is none


def _probe_python(argv: Sequence[str], minor: str) -> Compiler | None:
    """Return a Python as a compiler if it runs and is CPython X.Y, else None."""
    code, out, _ = ask([*argv, "-I", "-S", "-c", ASK])  # one that does not run here is skipped
    words = out.split()
    if code or len(words) != 2 or not words[0].startswith(f"{minor}.") or not words[1].startswith("cpython-"):
        return None
    return Compiler(argv=tuple(argv), version=words[0], tag=words[1])


def list_sources(folder: Path, *, below: str) -> list[str]:
    """Return the .py files to compile, sorted, as paths of `folder`; without test suites, which no program imports."""
    found = []
    for entry in walk(folder, below):
        path = f"{below}/{entry.path}"
        if entry.kind == FOLDER:
            entry.enter = entry.name != "__pycache__" and is_imported(f"{path}/")
        elif entry.kind == FILE and entry.name.endswith(".py") and is_imported(path):
            found.append(path)
    return sorted(found)


def is_imported(path: str) -> bool:
    """Whether programs import this path, and it has one line; a folder's path ends with a slash."""
    return UNUSED.search(path) is None and path.splitlines() == [path]


def name_compiled_file(path: str, tag: str) -> str:
    """Return the path of the .pyc of a .py."""
    folder, name = os.path.split(path)
    return os.path.join(folder, "__pycache__", f"{name[:-3]}.{tag}.pyc")


def save(pieces: Sequence[Piece], target: Path) -> None:
    """Write pieces into one file: a line with their names and sizes, then their content."""
    rows = sort_pieces(pieces)
    with target.open("wb") as file:
        names = [[piece.path, piece.size] for piece in rows]
        file.write(json.dumps(names, separators=(",", ":")).encode() + b"\n")
        write_pieces(rows, file)


def load(path: Path) -> list[Piece]:
    """Read the pieces that `save` wrote."""
    with path.open("rb") as file:
        rows, offset, found = json.loads(file.readline()), file.tell(), []
    for name, size in rows:
        found.append(Piece(path=name, source=path, offset=offset, size=size))
        offset += size
    return found


@dataclass(frozen=True, kw_only=True)
class PackageSources:
    """The .py files of one package; `key` is the digest of everything that decides their .pyc files."""

    key: str
    title: str
    paths: tuple[str, ...]


def compile_packages(
    packages: Sequence[PackageSources],
    *,
    more: Sequence[str] = (),
    compile_files: Callable[[list[str]], list[Piece]],
    tag: str,
    store: Store,
    work: Path,
    run_in_background: Callable[[Callable[[], object]], None],
) -> list[Piece]:
    """Take the .pyc files of packages from the cache, and compile all missing ones in one run.

    Files of several packages are compiled each time, and so are `more`: no package is known to own them. The cache is
    written by `run_in_background`.
    """
    often = Counter(path for package in packages for path in package.paths)
    shared = {path for path, count in often.items() if count > 1}
    unsure = {name_compiled_file(path, tag) for path in shared}
    pieces, missing = list[Piece](), dict[PackageSources, list[str]]()
    place = tempfile.mkdtemp(prefix="kept-", dir=work)  # layers with the same package may be made in parallel
    for package in packages:
        paths = [path for path in package.paths if path not in shared]
        if not paths:
            continue
        entry = store.find("compiled", package.key)
        own = Path(place, f"{package.key}.pycs")  # no other process removes it while it is read
        if entry is not None and store.check(entry) and _link(entry.path, own):
            pieces += [piece for piece in load(own) if piece.path not in unsure]
        else:
            missing[package] = paths
    made = {piece.path: piece for piece in compile_files(sorted({*more, *shared}.union(*missing.values())))}
    for package, paths in missing.items():
        names = [name_compiled_file(path, tag) for path in paths]
        run_in_background(partial(_store, store, package, [made[name] for name in names if name in made]))
    return [*pieces, *made.values()]


def _store(store: Store, package: PackageSources, pieces: Sequence[Piece]) -> None:
    store.get("compiled", package.key, title=package.title, make=lambda target: save(pieces, target))


def _link(source: Path, target: Path) -> bool:
    """Link a file under another name, or copy it; return False if it is gone."""
    try:
        target.unlink(missing_ok=True)
        os.link(source, target)
    except FileNotFoundError:
        return False
    except OSError:
        shutil.copyfile(source, target)
    return True
