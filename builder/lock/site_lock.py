"""The lock of one site: the base image, then conda's packages, then pip's, each resolved against the previous ones.

The files of locks are written atomically, the index last; no link in a recipe's folder is followed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from builder.compile.image_files import find_base_registry
from builder.layers.conda_solver import CondaPackage, list_virtual_packages
from builder.layers.reference import DIGEST, parse_reference
from builder.layers.registry import RegistryError, fetch_manifest_digest
from builder.layers.registry_login import find_login
from builder.layers.wheels import is_distribution
from builder.lock.conda import lock_conda
from builder.lock.pip import Interpreter, lock_pip
from builder.lock.session import Session
from builder.model.finding import ConfigError, Finding, Location, ToolError, UnsupportedError
from builder.model.lock import BaseLock, Lock, PipFile
from builder.model.site import BaseImage
from builder.model.target import Target
from builder.parse.lock_files import (
    PIXI,
    PYLOCK,
    LockEntry,
    format_index,
    name_site_folder,
    read_conda,
    read_index,
    read_lock,
)
from builder.parse.pylock import write_pylock
from builder.resolve.conda_names import find_python_name
from builder.resolve.locked import make_lock_request
from builder.resolve.requested import FAMILY
from builder.resolve.resolve import CONDA_BACKENDS
from builder.sif import tree
from builder.sif.bounded import parse_json
from builder.sif.digest import hash_file
from builder.system.files import name_draft
from builder.system.process import capture, find_program


def normalize_packages(provided: Mapping[str, str]) -> dict[str, str]:
    """Return names and versions in normal form, without invalid ones."""
    found = {}
    for name, version in provided.items():
        if not is_distribution(name, version):
            continue
        try:
            found[str(canonicalize_name(name))] = str(Version(version))
        except InvalidVersion:
            continue
    return found


def select_python_packages(packages: Iterable[CondaPackage]) -> dict[str, str]:
    """Return the Python packages among conda's: those in the table of names, and those that depend on Python."""
    found = {}
    for package in packages:
        needs = {spec.split()[0] for spec in package.depends}
        known = find_python_name(package.name)
        if package.name not in ("python", "python_abi") and (known or needs & {"python", "python_abi"}):
            found[known or package.name] = package.version
    return normalize_packages(found)


SECONDS = 120.0  # for an image that is mounted first
# One line of JSON: versions and packages of the Python that `python3` is in the image, and the C library's.
QUESTION = """
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null || true)
python3 -I - "$glibc" <<'END'
import json, platform, sys
from importlib import metadata
found = {str(item.metadata["Name"]): item.version for item in metadata.distributions() if item.metadata["Name"]}
print("recipe:" + json.dumps({"glibc": sys.argv[1], "python": platform.python_version(), "provides": found}))
END
[ "$?" = 0 ] || printf 'recipe:{"glibc": "%s"}\\n' "$glibc"
"""


def lock_base(
    image: BaseImage, *, own: bool, name: str, packages: bool, runtimes: tuple[str, ...], session: Session
) -> BaseLock:
    """Find the digest; ask a local image for facts that its site's file does not have, and for its `packages`.

    `own` is true if the site or the user names its registry, and not the recipe.
    """
    glibc, python = image.glibc or "", image.python or ""
    known = {key: value for key, value in image.provides.items() if value != "unknown"} if packages else {}
    if "://" in image.reference:
        digest, why = _read_base_digest(image.reference, own=own, session=session)
        return BaseLock(
            reference=name, digest=digest, why=why, python=python, glibc=glibc, provides=normalize_packages(known)
        )
    path = Path(image.reference)
    if not path.is_absolute():
        return BaseLock(reference=name, why="it is not an image with a name", python=python, glibc=glibc)
    try:
        size, digest = path.stat().st_size, f"sha256:{hash_file(path)}"
    except OSError as error:
        why = f"it cannot be read on this machine: {(error.strerror or str(error)).lower()}"
        return BaseLock(reference=name, why=why, python=python, glibc=glibc, provides=normalize_packages(known))
    answer = {} if glibc and python and not packages else _ask(path, runtimes=runtimes, session=session)
    return BaseLock(
        reference=name,
        digest=digest,
        size=size,
        python=_read_text(answer, "python") or python,
        glibc=_read_text(answer, "glibc").removeprefix("glibc").strip() or glibc,
        provides=normalize_packages({**known, **_read_packages(answer)}) if packages else {},
    )


def _read_base_digest(reference: str, *, own: bool, session: Session) -> tuple[str, str]:
    """Return the digest of an image's manifest, or "" and the reason why it is unknown; nothing is downloaded."""
    scheme, tag = reference.partition("://")[0], parse_reference(reference)[2]
    if DIGEST.fullmatch(tag):
        return tag, ""
    if scheme not in ("docker", "oras"):
        return "", f"{scheme}:// images have no digest that a registry could give"
    if session.offline:
        return "", "the registry was not asked (--offline)"
    logins = partial(find_login, environment=session.environment, own=own)
    try:
        return fetch_manifest_digest(reference, logins=logins, environment=session.environment), ""
    except RegistryError as error:
        return "", str(error)


def _ask(path: Path, *, runtimes: tuple[str, ...], session: Session) -> Mapping[str, object]:
    """Run the question in the image; return nothing without an engine or a Python in the image."""
    runtime = next((found for name in runtimes if (found := find_program(name, env=session.environment))), None)
    if runtime is None:
        return {}
    argv = [str(runtime), "exec", "--cleanenv", "--contain", str(path), "sh", "-c", QUESTION]
    answer = capture(argv, env=session.environment, timeout=SECONDS)
    lines = answer.text.splitlines() if answer.exit_code == 0 else []
    line = next((line for line in lines if line.startswith("recipe:{")), "")
    try:
        found = parse_json(line.removeprefix("recipe:"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _read_text(answer: Mapping[str, object], name: str) -> str:
    value = answer.get(name)
    return value if isinstance(value, str) else ""


def _read_packages(answer: Mapping[str, object]) -> dict[str, str]:
    found = answer.get("provides")
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}


def has_known_packages(base: BaseLock) -> bool:
    """Whether an image's own packages are known, not only its torch."""
    return bool(set(base.provides) - set(FAMILY))


# The C library of the oldest systems that current builds of torch and of conda-forge support.
USUAL_GLIBC = "2.28"


@dataclass(frozen=True, kw_only=True)
class SiteLock:
    """A lock with the text of its two files (empty: no packages), and warnings."""

    lock: Lock
    conda: str
    pip: str
    findings: tuple[Finding, ...] = ()


def lock_site(target: Target, *, session: Session) -> SiteLock:
    """Lock a target; raises UnsupportedError, StepError or ConfigError with the reason."""
    asked, at = make_lock_request(target), Location(file=target.recipe.file)
    runtimes = (target.site.runtime.command, "apptainer", "singularity")
    base = lock_base(
        target.base,
        own=find_base_registry(target)[1],
        name=asked.base,
        packages=asked.place == "base",
        runtimes=runtimes,
        session=session,
    )
    glibc = base.glibc or USUAL_GLIBC
    virtual = list_virtual_packages(machine=asked.arch, glibc=glibc, cuda=asked.cuda) if asked.place == "conda" else ()
    text = ""
    if asked.conda:
        text = lock_conda(asked, virtual=virtual, folder=target.recipe.folder, at=at, session=session)
    packages = read_conda(text, file=Path("pixi.lock")) if text else ()
    lock = Lock(
        site=target.site.name, recipe=target.recipe.digest, tool=target.context.tool, asked=asked, base=base,
        virtual=virtual, conda=packages,
    )  # fmt: skip
    if not (asked.torch or asked.pip):
        return SiteLock(lock=lock, conda=text, pip="", findings=tuple(_list_findings(target, base=base)))
    python = _find_python(lock, at=at)
    files = lock_pip(
        asked,
        target=Interpreter(python=python, arch=asked.arch, glibc=glibc),
        torch_index=target.environment.torch.index if target.environment.torch else "",
        provided=select_python_packages(packages) if asked.place == "conda" else base.provides,
        at=at,
        session=session,
    )
    _refuse_commits(target, files=files, at=at)
    complete = Lock(**{**vars(lock), "pip": files})
    pip = write_pylock(files, python=".".join(python.split(".")[:2]))
    return SiteLock(lock=complete, conda=text, pip=pip, findings=tuple(_list_findings(target, base=base)))


def _find_python(lock: Lock, *, at: Location) -> str:
    if lock.python:
        return lock.python
    message = f"the Python of '{lock.base.reference}' is not known: wheels cannot be chosen for it"
    fix = (
        "add 'python=3.12' to the dependencies, or give the image as a file (--base image.sif), which can be inspected"
    )
    raise ConfigError(Finding(code="lock-python", message=message, at=at, fix=fix))


def _refuse_commits(target: Target, *, files: tuple[PipFile, ...], at: Location) -> None:
    """cotainr and tykky call pip once, which accepts no commits among hashes."""
    commits = [file.name for file in files if file.kind == "vcs"]
    if commits and target.backend in CONDA_BACKENDS:
        message = (
            f"'{commits[0]}' comes from version control: {target.backend} cannot install it among files with hashes"
        )
        fix = "name a release or the address of a wheel, or use another backend or site"
        raise UnsupportedError(Finding(code="lock-commit", message=message, at=at, fix=fix))


def _list_findings(target: Target, *, base: BaseLock) -> list[Finding]:
    found = []
    site, reference = target.site.name, base.reference
    if not base.digest:
        message = f"{site}: the base image '{reference}' is locked by its name alone: {base.why}"
        fix = "lock where it can be reached; the image of that name may change"
        found.append(Finding(code="lock-base", message=message, fix=fix, level="warning"))
    if not base.glibc:
        message = f"{site}: the glibc of '{reference}' is not known: files for glibc {USUAL_GLIBC} are locked"
        fix = "give the image as a file (--base image.sif) on a machine with Apptainer, so that it can be inspected"
        found.append(Finding(code="lock-glibc", message=message, fix=fix, level="warning"))
    if target.environment.place == "base" and not has_known_packages(base):
        message = (
            f"{site}: of the packages in '{reference}' only {_format_names(base)} is known: the others may be replaced"
        )
        fix = "name the image as a file, in a site of your own, on a machine with Apptainer: it can be inspected then"
        found.append(Finding(code="lock-provided", message=message, fix=fix, level="warning"))
    return found


def _format_names(base: BaseLock) -> str:
    return ", ".join(sorted(base.provides)) or "none"


def write_locks(index: Path, locked: Iterable[SiteLock], *, tool: str) -> None:
    """Write the locks of some sites; those of other sites stay. Raises ToolError if that fails."""
    new = {item.lock.site: item for item in locked}
    top = index.parent.resolve()
    locks, files = _read_others(index, without=set(new))
    for site, item in new.items():
        locks[site] = item.lock
        files[site] = (_compute_digest(item.conda), _compute_digest(item.pip))
    try:
        for site, item in new.items():
            folder = _name_site_folder(index, site)
            for name, text in ((PIXI, item.conda), (PYLOCK, item.pip)):
                _replace_file(top, folder / name, text)
            tree.remove_empty(top, str(folder))
        _replace_file(top, Path(index.name), format_index(locks, files=files, tool=tool))
    except OSError as error:
        for site in new:  # of a lock that could not be written no empty folder stays
            folder = _name_site_folder(index, site)
            with suppress(OSError):
                tree.remove_empty(top, str(folder))
                tree.remove_empty(top, str(folder.parent))
        at = Location(file=str(index.parent / (error.filename or index.name)))
        message = f"the lock cannot be written: {(error.strerror or str(error)).lower()}"
        odd = isinstance(error, tree.TreeError)
        fix = "check where it leads, remove it, and lock again" if odd else "check the rights and the space"
        raise ToolError(Finding(code="lock-write", message=message, at=at, fix=fix)) from None


def _read_others(index: Path, *, without: set[str]) -> tuple[dict[str, Lock], dict[str, tuple[str, str]]]:
    """Read the locks of other sites; a faulty one is dropped with its files: it could not be used either."""
    entries: Mapping[str, LockEntry] = {}
    with suppress(ConfigError):
        found = read_index(index)
        entries = found.sites if found else {}
    locks, files = {}, {}
    for site, entry in entries.items():
        if site in without:
            continue
        with suppress(ConfigError):
            lock = read_lock(index, site)
            if lock is not None:
                locks[site], files[site] = lock, (entry.conda, entry.pip)
                continue
        tree.remove(_name_site_folder(index, site), below=index.parent.resolve())
    return locks, files


def _name_site_folder(index: Path, site: str) -> Path:
    """Return the folder of a site's files, relative to that of the index."""
    return name_site_folder(index, site).relative_to(index.parent)


def _compute_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def _replace_file(top: Path, path: Path, text: str) -> None:
    """Replace a file below a folder atomically; without text it is removed."""
    if not text:
        tree.remove(path, below=top)
        return
    draft = name_draft(path)
    try:
        tree.write(top, str(draft), text.encode())
        tree.move(top, str(draft), top, str(path))
    finally:
        tree.remove(draft, below=top)
