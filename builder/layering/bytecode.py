""".pyc files for a staged environment: made in parallel, kept by wheel, put back when the same wheel comes again."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .failure import LayeringError
from .programs import ask, clean_environment, find_program

WORKER = Path(__file__).with_name("compile_worker.py")


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A Python of the image's version: a program of this machine, or the base image's own in a container."""

    argv: tuple[str, ...]
    version: str  # X.Y.Z
    tag: str  # cpython-311
    binds: str = ""  # the option that shows a folder to it, where it runs in a container

    @property
    def inputs(self) -> list[object]:
        """What of it decides the bytes."""
        return [self.version, self.tag]

    def compile(self, folder: Path, paths: Sequence[str], *, prefix: str, workers: int) -> None:
        """Compile the files of a folder as they will lie below `prefix`; raises LayeringError."""
        if not paths:
            return
        argv, seen = [*self.argv], str(folder)
        worker = str(WORKER)
        if self.binds:
            argv = [*argv[:2], self.binds, f"{folder}:/mnt", self.binds, f"{WORKER}:/media/worker.py", *argv[2:]]
            seen, worker = "/mnt", "/media/worker.py"
        done = subprocess.run(
            [*argv, "-I", "-S", "-B", worker, seen, prefix, str(workers)],
            input="".join(f"{path}\n" for path in paths),
            env=clean_environment({"PYTHONHASHSEED": "0"}),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(done.stderr[-2000:], flush=True)
            raise LayeringError(f"Python {self.version} could not compile the packages: exit code {done.returncode}")


ASK = "import sys, platform; print(platform.python_version(), sys.implementation.cache_tag)"


def find_compiler(minor: str, *, uv: str, runtime: str, base: Path, python: str) -> Compiler:
    """A Python X.Y: on PATH, one that uv knows, else the base image's; raises LayeringError."""
    found = of_this_machine(minor, uv=uv)
    if found:
        return found
    inside = (runtime, "exec", "--cleanenv", "--no-home", str(base), python)
    found = asked(inside, minor)
    if found is None:
        raise LayeringError(f"there is no Python {minor} here, and the base image's own does not run")
    # Folders are shown to it by options that come after `exec`.
    return Compiler(argv=inside, version=found.version, tag=found.tag, binds="--bind")


def of_this_machine(minor: str, *, uv: str) -> Compiler | None:
    """A Python X.Y on PATH, or one that uv knows."""
    own = find_program(f"python{minor}")
    found = asked((own,), minor) if own else None
    if found is None and uv:
        managed = _known_to_uv(uv, minor)
        found = asked((managed,), minor) if managed else None
    return found


def _known_to_uv(uv: str, minor: str) -> str | None:
    _, out, _ = ask([uv, "python", "find", "--offline", "--no-project", "--system", minor])
    return out.strip() or None


def asked(argv: Sequence[str], minor: str) -> Compiler | None:
    """A Python that runs and is CPython X.Y."""
    code, out, _ = ask([*argv, "-I", "-S", "-c", ASK])
    words = out.split()
    if code or len(words) != 2 or not words[0].startswith(f"{minor}.") or not words[1].startswith("cpython-"):
        return None
    return Compiler(argv=tuple(argv), version=words[0], tag=words[1])


def sources(folder: Path, *, below: str) -> list[str]:
    """The .py files to compile, sorted, as paths of `folder`; not those of test suites, which no program imports."""
    found = []
    for root, names, files in os.walk(folder / below):
        names[:] = sorted(name for name in names if name not in ("tests", "__pycache__"))
        here = os.path.relpath(root, folder)
        found += [f"{here}/{name}" for name in sorted(files) if name.endswith(".py") and "\n" not in name]
    return found


def compiled_path(path: str, tag: str) -> str:
    """Where the .pyc of a .py lies."""
    folder, name = os.path.split(path)
    return os.path.join(folder, "__pycache__", f"{name[:-3]}.{tag}.pyc")


def save(folder: Path, paths: Sequence[str], target: Path) -> None:
    """Keep files of a folder in one archive."""
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        for path in paths:
            full = folder / path
            if full.is_file():
                info = tarfile.TarInfo(path)
                info.size = full.stat().st_size
                with full.open("rb") as file:
                    archive.addfile(info, file)


def restore(archive: Path, folder: Path) -> None:
    """Put kept files back; names in it are relative and ours."""
    with tarfile.open(archive, "r") as tar:
        for info in tar:
            content = tar.extractfile(info)
            path = folder / info.name
            if content is None or info.name.startswith("/") or ".." in info.name.split("/"):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())
