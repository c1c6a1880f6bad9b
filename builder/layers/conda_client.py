"""Exact conda packages, solved and linked by py-rattler: it knows every kind of package, and links for another prefix.

https://conda.github.io/rattler/py-rattler/
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ..sif.bounded import hash_file
from ..sif.errors import LayeringError
from ..sif.programs import ask, clean_environment, find_signal
from .certificates import FILE, FOLDERS
from .conda_program import find_rattler
from .conda_solver import CondaPackage, solve_request
from .downloads import DownloadMeter
from .spec import FIX as FETCH

WORKER = Path(__file__).with_name("conda_worker.py")
OTHER = "is not the one that its channel or the lock names"
AGAIN = "lock again with `recipe lock` if its channel has replaced it; if it has not, do not use it"
PART = re.compile(r"(?!\.)[A-Za-z0-9_.+!-]+")  # of names, which become names of files
UNSEEN = re.compile(r"no server is asked|no usable repodata cache")  # py-rattler 0.28
UNREACHABLE = re.compile(r"error sending request|dns error|[Cc]onnection refused|timed out|failed to lookup|50[0-9] ")


def read_packages(rows: Sequence[Mapping[str, Any]]) -> tuple[CondaPackage, ...]:
    """Read packages of a lock or of the solver, sorted by name; raises LayeringError for one without a sha256."""
    found = [CondaPackage(**{**row, "depends": tuple(row["depends"])}) for row in rows]
    for package in found:
        if not all(PART.fullmatch(part) for part in (package.name, package.version, package.build, package.subdir)):
            raise LayeringError(f"the channel has a package with an invalid name: {package.name[:100]!a}", fix=AGAIN)
        if not re.fullmatch(r"[0-9a-f]{64}", package.sha256):
            message = f"the channel gives no sha256 for '{package.name}' {package.version}"
            raise LayeringError(message, fix="use a channel that gives hashes, or build with --backend apptainer")
    return tuple(sorted(found, key=lambda package: package.name))


@dataclass(frozen=True, kw_only=True)
class CondaClient:
    """py-rattler; `argv` starts a Python that has it."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    work: Path
    cache: Path
    offline: bool = False
    downloads: DownloadMeter = field(default_factory=lambda: DownloadMeter("downloading conda packages"))

    def solve(self, asked: Mapping[str, Any], *, virtual: Sequence[str]) -> tuple[CondaPackage, ...]:
        """Return the exact packages of an environment without a lock; raises LayeringError."""
        request = solve_request(
            channels=asked["channels"],
            specs=asked["specs"],
            virtual=virtual,
            platform=asked["platform"],
            cache=self.cache,
            work=self.work,
            alias=os.environ.get("CONDA_CHANNEL_ALIAS", ""),
            offline=self.offline,
        )
        return read_packages(self._call(request, what="the conda packages cannot be installed together")["records"])

    def link_packages(self, packages: Sequence[CondaPackage], folder: Path, *, prefix: str, platform: str) -> None:
        """Link packages below `folder` for their place at `prefix`; raises LayeringError."""
        for package in packages:
            _check_local_package(package)
        rows = [{**vars(package), "depends": list(package.depends)} for package in packages]
        request = {
            "do": "stage",
            "records": rows,
            "folder": str(folder),
            "prefix": prefix,
            "platform": platform,
            "cache": str(self.cache / "packages"),
            "offline": self.offline,
        }
        with self.downloads.count(lambda: self._find_sizes(packages)):
            self._call(request, what="the conda packages cannot be installed")

    def _find_sizes(self, packages: Sequence[CondaPackage]) -> dict[str, int]:
        """Find the sizes of the packages that are not in py-rattler's cache."""
        known = tuple(path.name for path in (self.cache / "packages").glob("*-*-*"))
        stems = {f"{package.name}-{package.version}-{package.build}": package for package in packages}
        missing = [package for stem, package in stems.items() if not any(name.startswith(stem) for name in known)]
        return {package.url: package.size for package in missing if not package.url.startswith("file:")}

    def _call(self, request: Mapping[str, Any], *, what: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            question, answer = Path(folder, "request.json"), Path(folder, "answer.json")
            question.write_text(json.dumps(request), encoding="utf-8")
            code, out, err = ask([*self.argv, WORKER, question, answer], env=clean_environment(self.environment))
            try:
                if code:
                    raise ValueError  # its answer may be incomplete
                found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                print((out + err).strip()[-4000:], flush=True)
                if killed := find_signal("py-rattler", code):
                    raise killed from None
                raise LayeringError(
                    f"py-rattler ended with {code} and no answer",
                    fix="build again; if it stays so, report it with the log",
                ) from None
        if found["error"]:
            text = re.sub(r"\s+", " ", found["text"]).strip().rstrip(".")
            if self.offline and UNSEEN.search(text):
                raise LayeringError("conda packages were not fetched before, and no server is asked", fix=FETCH)
            raise _make_layering_error(found["error"], text, what=what)
        return found


def _check_local_package(package: CondaPackage) -> None:
    """Compare a package of a local channel with its sha256: py-rattler checks only what it downloads."""
    if not package.url.startswith("file://"):
        return
    path = Path(unquote(package.url.removeprefix("file://")))
    try:
        same = hash_file(path) == package.sha256
    except OSError as error:
        message = f"the package '{path}' cannot be read: {error.strerror}"
        raise LayeringError(message, fix="check the channel, or lock again with `recipe lock`") from None
    if not same:
        raise LayeringError(f"the package '{path}' {OTHER}", fix=AGAIN)


def _make_layering_error(kind: str, text: str, *, what: str) -> LayeringError:
    other = re.search(r"hash mismatch when extracting (\S+)", text)
    if other:
        return LayeringError(f"the package '{other[1]}' {OTHER}", fix=AGAIN)
    fix = "check the names of the channels and packages"
    if kind == "SolverError":
        fix = "loosen a version, or add the channel that has what is missing"
    elif UNREACHABLE.search(text):
        fix = "build where the channel can be reached, or set https_proxy (check it if it is set)"
    return LayeringError(f"{what}: {text}", fix=fix)


def find_client(*, work: Path, cache: Path, environment: Mapping[str, str], offline: bool) -> CondaClient:
    """Return py-rattler of this Python, else one that uv fetches; raises LayeringError with the fix.

    `environment` are uv's variables.
    """
    folder = find_rattler(work=work, environment=environment, offline=offline)
    own = {name: environment[name] for name in (FILE, FOLDERS) if name in environment}
    if folder is not None:
        own = {**environment, "PYTHONPATH": str(folder)}
    return CondaClient(argv=(sys.executable,), environment=own, work=work, cache=cache, offline=offline)
