"""Exact Python packages for a site: resolved by uv for the site's Python and glibc, one file each with its sha256.

Of the files of a package the one is taken that an installer would take for that Python, processor and glibc.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.layers.uv import make_uv_environment, make_uv_settings
from builder.layers.wheels import (
    HASH_FIX,
    PLATFORMS,
    check_all_given,
    collect_hashes,
    describe_mismatch,
    parse_pins,
    write_stubs,
)
from builder.lock.session import (
    Session,
    find_uv_program,
    make_resolver_error,
)
from builder.model.finding import Finding, Location, StepError, UnsupportedError
from builder.model.lock import LockRequest, PipFile
from builder.model.secrets import strip_credentials
from builder.parse.lock_files import TORCH_FAMILY, parse_pylock
from builder.resolve.wheel_tags import choose_wheel
from builder.sif.bounded import hash_file
from builder.sif.errors import LayeringError


def parse_local_path(url: str) -> Path | None:
    """Return the path of a file:// address or a plain path, None for another address."""
    if url.startswith("/"):
        return Path(url)
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


# uv 0.13 of a package and its extra.
CONFLICT = re.compile(r"(?P<name>[a-z0-9][a-z0-9-]*)\[torch\](?:==\S+)? depends? on (?P<torch>torch[<>=!~][^ ]*)")
REQUIRERS = "requirers.txt"  # what requires each package


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """The Python that the packages are for: X.Y or X.Y.Z, the processor, X.Y of glibc."""

    python: str
    arch: str
    glibc: str

    @property
    def platform(self) -> str:
        """The newest platform of uv's that the glibc supports."""
        minor = int(self.glibc.partition(".")[2].partition(".")[0] or 0)
        fitting = max((known for known in PLATFORMS if known <= minor), default=PLATFORMS[0])
        return f"{self.arch}-manylinux_2_{fitting}"


def lock_pip(
    asked: LockRequest,
    *,
    target: Interpreter,
    torch_index: str,
    provided: Mapping[str, str],
    at: Location,
    session: Session,
) -> tuple[PipFile, ...]:
    """Resolve and choose the files; `provided` is what conda or the base image has, by its version.

    Raises UnsupportedError if no versions fit and StepError if an index cannot be reached.
    """
    if not (asked.torch or asked.pip):
        return ()
    folder = session.work / "pip"
    folder.mkdir(exist_ok=True)
    stubs = folder / "stubs"
    constraints = [*asked.constraints, *write_stubs(stubs, {**provided, **_list_releases(provided)})]
    _write_lines(folder / "constraints.txt", constraints)
    _write_lines(folder / "excludes.txt", [name for name in asked.protected if name not in provided])
    _write_lines(folder / "requirements.in", [*_select_options(asked.options), *asked.pip])
    (folder / "pyproject.toml").write_text(_project(asked.torch, own=(), index=""), encoding="utf-8")
    if "://" in torch_index and asked.torch:
        _refuse_own_lines(folder, asked, target=target, at=at, session=session)
        options = ["--default-index", torch_index]
        try:
            names = _compile(folder, ["pyproject.toml"], options, target=target, at=at, session=session, own_index=True)
        except StepError:
            _refuse_without_torch(folder, asked, target=target, at=at, session=session)
            raise
        lines = (*asked.torch, *_pin_torch_family(names, asked))
        (folder / "pyproject.toml").write_text(_project(lines, own=lines, index=torch_index), encoding="utf-8")
    packages = _compile(folder, INPUTS, _make_options(asked), target=target, at=at, session=session)
    kept = [package for package in packages if not _is_stub(package, stubs)]
    given = collect_hashes(parse_pins("\n".join([*asked.torch, *asked.pip])))
    if given and not asked.torch:  # what the site's torch requires has no line in the recipe
        _check_all_given(kept, given=given, at=at)
    files = (_choose_file(one, given=given.get(str(one["name"]), ()), target=target, at=at) for one in kept)
    return tuple(sorted(files, key=lambda file: file.name))


def _refuse_own_lines(folder: Path, asked: LockRequest, *, target: Interpreter, at: Location, session: Session) -> None:
    """Raise UnsupportedError for a line that is missing or for another Python, before torch's index is waited for."""
    lines = [line for line in asked.pip if not any(_is_named(name, [line]) for name in TORCH_FAMILY)]
    if not lines:
        return
    own = "own.in"
    _write_lines(folder / own, [*_select_options(asked.options), *lines])
    words = ["--format", "requirements.txt", "--output-file", "own.txt", "--no-deps", *_make_options(asked)]
    try:
        _run_uv(folder, [own], words, output="own.txt", target=target, at=at, session=session)
    except UnsupportedError as error:  # with what torch brings it may be another fault
        if all(finding.code in ("no-package", "no-wheel") for finding in error.findings):
            raise


def _refuse_without_torch(
    folder: Path, asked: LockRequest, *, target: Interpreter, at: Location, session: Session
) -> None:
    """Raise UnsupportedError for a package that the other indexes do not have, where torch's does not answer."""
    (folder / "pyproject.toml").write_text(_project((), own=(), index=""), encoding="utf-8")
    try:
        _compile(folder, INPUTS, _make_options(asked), target=target, at=at, session=session)
    except UnsupportedError as error:  # a conflict may be with another torch than the site's
        if all(finding.code in ("no-package", "no-wheel") for finding in error.findings):
            raise
    except StepError:
        return


def _check_all_given(packages: Iterable[Mapping[str, Any]], *, given: Mapping[str, object], at: Location) -> None:
    try:
        check_all_given((str(package["name"]) for package in packages), given=given)
    except LayeringError as error:
        raise UnsupportedError(Finding(code="hash-none", message=str(error), at=at, fix=error.fix)) from None


def _list_releases(provided: Mapping[str, str]) -> dict[str, str]:
    """The torch family of an image by its releases: NGC's 2.8.0a0 is 2.8.0 to whatever requires it."""
    return {name: Version(provided[name]).base_version for name in TORCH_FAMILY if name in provided}


INPUTS = ["pyproject.toml", "requirements.in"]


def _make_options(asked: LockRequest) -> list[str]:
    named = ["--constraints", "constraints.txt", "--excludes", "excludes.txt"]
    return [*named, *_make_prerelease_option(asked.options)]


def find_requirers(
    asked: LockRequest, *, target: Interpreter, at: Location, session: Session
) -> dict[str, tuple[str, ...]]:
    """Return what requires each package of the last `lock_pip`, as uv says; lines of the recipe are left out."""
    words = ["--format", "requirements.txt", "--annotation-style", "line", "--no-strip-extras"]
    words += ["--output-file", REQUIRERS]
    folder = session.work / "pip"
    _run_uv(folder, INPUTS, [*words, *_make_options(asked)], output=REQUIRERS, target=target, at=at, session=session)
    found = {}
    for line in (folder / REQUIRERS).read_text(encoding="utf-8").splitlines():
        name, _, via = line.partition("# via ")
        users = [user.split("[")[0].strip() for user in via.split(",")]
        known = tuple(user for user in users if re.fullmatch(r"[a-z0-9][a-z0-9-]*", user) and user != "recipe")
        found[str(canonicalize_name(re.split(r"[\[=<>!~ @]", name)[0]))] = known
    return found


def find_torch_conflict(
    files: Iterable[PipFile], asked: LockRequest, *, target: Interpreter, at: Location, session: Session
) -> tuple[str, str]:
    """Return a package of the last `lock_pip` whose extra `torch` requires another torch, and what it requires.

    Such a package installs next to this torch and does not use it: transformers 5 switches torch before 2.4 off.
    """
    folder, optional = session.work / "pip", [file for file in files if not file.torch and file.kind == "wheel"]
    _write_lines(folder / "optional.in", [f"{file.name}[torch]=={file.version}" for file in optional if file.version])
    inputs, output = ["pyproject.toml", "requirements.in", "optional.in"], "optional.txt"
    words = ["--format", "requirements.txt", "--output-file", output, *_make_options(asked)]
    try:
        _run_uv(folder, inputs, words, output=output, target=target, at=at, session=session)
    except UnsupportedError as error:
        text = error.findings[0].message
        found = CONFLICT.search(text)
        return (found["name"], found["torch"].strip().rstrip(",")) if found else ("", "")
    except StepError:  # what extras require was not downloaded before, or cannot be now: no lock needs it
        return "", ""
    return "", ""


def _pin_torch_family(packages: Iterable[Mapping[str, Any]], asked: LockRequest) -> list[str]:
    """Pin what torch requires of its family (a vendor's Triton), which is known only after a first resolution."""
    return [
        f"{name}=={package['version']}"
        for package in packages
        if (name := package["name"]) in TORCH_FAMILY and not _is_named(name, asked.torch)
    ]


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _select_options(options: Iterable[str]) -> list[str]:
    """Return the options that uv reads in a requirements file; hashes are found again."""
    return [line for line in options if not line.startswith(("--require-hashes", "--pre", "--trusted-host"))]


def _make_prerelease_option(options: Iterable[str]) -> list[str]:
    hosts = [line.removeprefix("--trusted-host ") for line in options if line.startswith("--trusted-host ")]
    insecure = [word for host in hosts for word in ("--allow-insecure-host", host)]
    return [*(["--prerelease", "allow"] if "--pre" in options else []), *insecure]


def _is_named(name: str, lines: Iterable[str]) -> bool:
    return name in {str(canonicalize_name(re.split(r"[\[=<>!~ ]", line)[0])) for line in lines}


def _project(lines: Iterable[str], *, own: Iterable[str], index: str) -> str:
    """Return a project whose direct dependencies come from an index of their own: uv has this for projects alone."""
    text = f'[project]\nname = "recipe"\nversion = "0"\ndependencies = {json.dumps(list(lines))}\n'
    if own:
        names = [re.split(r"[\[=<>!~ ]", line)[0] for line in own]
        text += f'[[tool.uv.index]]\nname = "torch"\nurl = {json.dumps(index)}\nexplicit = true\n[tool.uv.sources]\n'
        text += "".join(f'{json.dumps(name)} = {{ index = "torch" }}\n' for name in names)
    return text


def _compile(
    folder: Path,
    inputs: list[str],
    options: list[str],
    *,
    target: Interpreter,
    at: Location,
    session: Session,
    own_index: bool = False,
) -> list[Mapping[str, Any]]:
    """Run uv and return the packages of the pylock that it writes."""
    output = folder / "pylock.toml"
    words = ["--format", "pylock.toml", "--output-file", output.name, *options]
    _run_uv(folder, inputs, words, output=output.name, target=target, at=at, session=session, own_index=own_index)
    return list(parse_pylock(output.read_text(encoding="utf-8"), file=output).get("packages", []))


def _run_uv(
    folder: Path,
    inputs: list[str],
    words: list[str],
    *,
    output: str,
    target: Interpreter,
    at: Location,
    session: Session,
    own_index: bool = False,
) -> None:
    """Have uv write a file of a folder."""
    (folder / output).unlink(missing_ok=True)
    settings = make_uv_settings(session.environment, cache=session.cache, offline=session.offline)
    # uv uses the interpreter only to build sdists: ours is sufficient.
    environment = make_uv_environment(settings, own_index=own_index) | {"UV_PYTHON": sys.executable}
    argv = [find_uv_program(session.environment), "pip", "compile", "--quiet", "--no-header"]
    argv += ["--python-version", target.python, "--python-platform", target.platform, *words, *inputs]
    finished = session.run(argv, cwd=folder, env=environment, name="uv")
    if finished.exit_code or not (folder / output).is_file():
        raise make_resolver_error(finished, at=at, offline=session.offline)


def _is_stub(package: Mapping[str, Any], stubs: Path) -> bool:
    return str((package.get("archive") or {}).get("path", "")).startswith(f"{stubs}/")


def _choose_file(
    package: Mapping[str, Any], *, given: Sequence[str] = (), target: Interpreter, at: Location
) -> PipFile:
    """Return the one file of a package: the wheel that fits best, else the sdist, else what the recipe itself names.

    Of the digests that the recipe gives it has one, as pip chooses among files with hashes.
    """
    name, version = str(package["name"]), str(package.get("version", ""))
    torch = name in TORCH_FAMILY
    if vcs := package.get("vcs"):
        part = f"#subdirectory={vcs['subdirectory']}" if vcs.get("subdirectory") else ""
        address = str(vcs["url"])
        url = f"git+{strip_credentials(address)}@{vcs['commit-id']}{part}"
        return PipFile(name=name, version=version, kind="vcs", url=url, torch=torch, direct=True)
    if "directory" in package:
        message = f"'{name}' is a folder of this machine: a lock can only name files that do not change"
        fix = "build a wheel of it (`pip wheel .`) and name that, or take it out of the lock by container.run"
        raise UnsupportedError(Finding(code="lock-folder", message=message, at=at, fix=fix))
    wheels = {_name_of(item): item for item in package.get("wheels") or []}
    sources = [item for item in (package.get("sdist"), package.get("archive")) if item]
    if given:
        _check_given(name, version, [*wheels.values(), *sources], given=given, at=at)
        wheels = {file: item for file, item in wheels.items() if _has_given(item, given)}
        sources = [item for item in sources if _has_given(item, given)]
    best = choose_wheel(wheels, python=target.python, arch=target.arch, glibc=target.glibc)
    source = wheels[best] if best else next(iter(sources), None)
    if source is None:
        message = (
            f"'{name}' {version} has no file for Python {target.python} on {target.arch} with glibc {target.glibc}"
        )
        fix = "use another version, another Python, or a base image with a newer glibc"
        raise UnsupportedError(Finding(code="lock-no-file", message=message, at=at, fix=fix))
    url = strip_credentials(_find_address(source))
    path = parse_local_path(url)
    size = int(source.get("size", 0)) or (path.stat().st_size if path and path.is_file() else 0)
    sha256 = str((source.get("hashes") or {}).get("sha256", "")) or (hash_file(path) if path else "")
    if not sha256:
        message = f"the index has no sha256 for '{name}' {version}"
        raise StepError(Finding(code="lock-no-hash", message=message, at=at, fix="use an index that gives hashes"))
    is_wheel = unquote(url).partition("#")[0].endswith(".whl")
    return PipFile(
        name=name, version=version, kind="wheel" if is_wheel else "sdist", url=url, sha256=sha256, size=size,
        torch=torch, direct="archive" in package,
    )  # fmt: skip


def _list_digests(source: Mapping[str, Any]) -> list[str]:
    """The digests of a file, as the index gives them; of a file of this machine its sha256."""
    found = [f"{algorithm}:{value}" for algorithm, value in (source.get("hashes") or {}).items()]
    path = parse_local_path(_find_address(source))
    return found or ([f"sha256:{hash_file(path)}"] if path and path.is_file() else [])


def _has_given(source: Mapping[str, Any], given: Sequence[str]) -> bool:
    return any(value in given for value in _list_digests(source))


def _check_given(
    name: str, version: str, sources: Sequence[Mapping[str, Any]], *, given: Sequence[str], at: Location
) -> None:
    """Raise UnsupportedError where no file of a package has a digest that the recipe gives."""
    found = [value for source in sources for value in _list_digests(source)]
    if not set(found) & set(given):
        message = describe_mismatch(f"{name} {version}".strip(), given=given, found=found or ["none"])
        fix = HASH_FIX.format(name)
        if sources and not any(_find_address(source).partition("#")[0].endswith(".whl") for source in sources):
            fix += "; where --no-binary asks for sources, give the digest of the sources or remove that option"
        if not any(value.startswith("sha256:") for value in given):
            fix = f"write the sha256 of '{name}', which an index gives"
        raise UnsupportedError(Finding(code="hash", message=message, at=at, fix=fix))


def _find_address(source: Mapping[str, Any]) -> str:
    """Return the address of a file; a path becomes a file:// address."""
    if source.get("url"):
        return str(source["url"])
    return f"file://{quote(str(source['path']), safe='/+@~')}"


def _name_of(source: Mapping[str, Any]) -> str:
    return unquote(_find_address(source).partition("#")[0].rpartition("/")[2])
