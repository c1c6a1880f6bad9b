"""The lock of one site: the base image, then conda's packages, then pip's, each resolved against the previous ones.

The files of locks are written atomically, the index last; no link in a recipe's folder is followed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from builder.compile.image_files import find_base_registry
from builder.layers.conda_solver import CondaPackage, list_virtual_packages
from builder.lock.base_lock import has_known_packages, lock_base, normalize_packages
from builder.lock.conda import lock_conda
from builder.lock.pip import Interpreter, find_requirers, find_torch_conflict, lock_pip
from builder.lock.session import Session, locate_errors
from builder.model.finding import ConfigError, Finding, Location, StepError, ToolError, UnsupportedError
from builder.model.lock import BaseLock, Lock, LockRequest, PipFile
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
    write_pylock,
)
from builder.resolve.checks.closure import (
    judge_closure,
    judge_conda,
    make_unknown_finding,
    plan_torch,
    report_torch_conflict,
)
from builder.resolve.conda_names import find_python_name
from builder.resolve.locked import list_other_conda, make_lock_request, refuse_own_packages
from builder.sif import removal, tree
from builder.system.files import name_draft


def select_python_packages(packages: Iterable[CondaPackage]) -> dict[str, str]:
    """Return the Python packages among conda's: those in the table of names, and those that depend on Python."""
    found = {}
    for package in packages:
        needs = {spec.split()[0] for spec in package.depends}
        known = find_python_name(package.name)
        if package.name not in ("python", "python_abi") and (known or needs & {"python", "python_abi"}):
            found[known or package.name] = package.version
    return normalize_packages(found)


INSTALLERS = ("python", "pip", "setuptools", "wheel", "uv")  # what a file of pip's packages alone takes from conda
# The C library of the oldest systems that current builds of torch and of conda-forge support.
USUAL_GLIBC = "2.28"


@dataclass(frozen=True, kw_only=True)
class SiteLock:
    """A lock with the text of its two files (empty: no packages), and warnings."""

    lock: Lock
    conda: str
    pip: str
    findings: tuple[Finding, ...] = ()
    target: Target | None = None  # as it was locked: with a torch that no line names


@locate_errors
def lock_site(target: Target, *, session: Session, images: bool = True) -> SiteLock:
    """Lock a target and judge its closure; raises UnsupportedError, StepError or ConfigError with the reason.

    Without `images` no registry is asked, and no engine runs: only the packages are of interest.
    """
    asked = make_lock_request(target)
    if images:
        refuse_own_packages(target)
    base = _lock_own_base(target, asked, session=session, images=images)
    glibc = base.glibc or USUAL_GLIBC
    virtual = list_virtual_packages(machine=asked.arch, glibc=glibc, cuda=asked.cuda) if asked.place == "conda" else ()
    told = _list_findings(target, base=base) if images else []
    text, unknown = _lock_conda_part(target, asked, virtual=virtual, session=session, needed=images)
    told += unknown
    packages = read_conda(text, file=Path("pixi.lock")) if text else ()
    _refuse_other_files(target, packages)
    lock = Lock(
        site=target.site.name, recipe=target.recipe.digest, tool=target.context.tool, asked=asked, base=base,
        virtual=virtual, conda=packages,
    )  # fmt: skip
    told += judge_conda(target, packages)
    locked = SiteLock(lock=lock, conda=text, pip="", target=target, findings=tuple(told))
    if not (asked.torch or asked.pip):
        return locked
    return _lock_pip_part(locked, target, glibc=glibc, session=session, images=images)


def _lock_pip_part(locked: SiteLock, target: Target, *, glibc: str, session: Session, images: bool) -> SiteLock:
    """Add pip's files to a lock, and judge them; where no line names the torch they bring, lock again with the site's.

    Raises as `lock_site`.
    """
    lock, asked, at = locked.lock, locked.lock.asked, Location(file=target.recipe.file)
    told = list(locked.findings)
    interpreter = Interpreter(python=_find_python(lock, at=at), arch=asked.arch, glibc=glibc)
    resolve_pip = partial(
        lock_pip,
        target=interpreter,
        torch_index=target.environment.torch.index if target.environment.torch else "",
        provided=select_python_packages(lock.conda) if asked.place == "conda" else lock.base.provides,
        at=at,
        session=session,
    )
    files = resolve_pip(asked)
    requirers = cache(partial(find_requirers, asked, target=interpreter, at=at, session=session))
    planned = plan_torch(
        target, files, requirers=requirers,
        resolve_pip=lambda more: resolve_pip(replace(asked, constraints=(*asked.constraints, *more))),
    )  # fmt: skip
    if planned is not None:
        try:
            return lock_site(planned, session=session, images=images)
        except StepError as error:
            if images:
                raise
            told.append(make_unknown_finding("packages with the torch of this site", error.findings[0]))
            target = planned
    _refuse_commits(target, files=files, at=at)
    told += judge_closure(target, files, requirers=requirers)
    if target.environment.torch is not None:
        conflict = find_torch_conflict(files, asked, target=interpreter, at=at, session=session)
        told += report_torch_conflict(target, *conflict)
    pip = write_pylock(files, python=".".join(interpreter.python.split(".")[:2]))
    return replace(locked, lock=replace(lock, pip=files), pip=pip, target=target, findings=tuple(told))


def _lock_conda_part(
    target: Target, asked: LockRequest, *, virtual: tuple[str, ...], session: Session, needed: bool
) -> tuple[str, list[Finding]]:
    """The text of conda's lock; where that fails and is not `needed`, a finding, and pip's packages are looked up."""
    at = Location(file=target.recipe.file)
    if not asked.conda or not (needed or _names_packages(asked.conda) or not asked.python):
        return "", []
    try:
        return lock_conda(asked, virtual=virtual, folder=target.recipe.folder, at=at, session=session), []
    except StepError as error:
        if needed or not asked.python:
            raise
        return "", [make_unknown_finding("conda's packages", error.findings[0])]


def _names_packages(conda: Iterable[str]) -> bool:
    """Whether conda is to install more than Python and what installs the packages of pip."""
    return any(re.split(r"[ =<>!~\[]", text.rpartition("::")[2])[0] not in INSTALLERS for text in conda)


def _lock_own_base(target: Target, asked: LockRequest, *, session: Session, images: bool) -> BaseLock:
    runtimes = (target.site.runtime.command, "apptainer", "singularity")
    return lock_base(
        target.base,
        own=find_base_registry(target)[1],
        name=asked.base,
        packages=asked.place == "base",
        runtimes=runtimes if images else (),
        session=session if images else replace(session, offline=True),
    )


def _refuse_other_files(target: Target, packages: Iterable[CondaPackage]) -> None:
    """Raise UnsupportedError where a channel has another file than the lock of another tool says."""
    if others := list_other_conda(target, packages):
        message = f"a channel has other files than the lock: {'; '.join(others[:4])}"
        fix = "do not use the file; ask the owner of the channel, or lock again with the tool that made the lock"
        raise UnsupportedError(Finding(code="hash", message=message, at=Location(file=target.recipe.file), fix=fix))


def _find_python(lock: Lock, *, at: Location) -> str:
    if lock.python:
        return lock.python
    message = f"the Python of '{lock.base.reference}' is not known: wheels cannot be chosen for it"
    fix = (
        "add 'python=3.12' to the dependencies, or give the image as a file (--base image.sif), which can be inspected"
    )
    raise ConfigError(Finding(code="lock-python", message=message, at=at, fix=fix))


def _refuse_commits(target: Target, *, files: tuple[PipFile, ...], at: Location) -> None:
    """A backend that calls pip once cannot: pip accepts no commits among hashes."""
    commits = [file.name for file in files if file.kind == "vcs"]
    if commits and target.traits.one_call:
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
        names = ", ".join(sorted(base.provides)) or "none"
        message = f"{site}: of the packages in '{reference}' only {names} is known: the others may be replaced"
        fix = "name the image as a file, in a site of your own, on a machine with Apptainer: it can be inspected then"
        found.append(Finding(code="lock-provided", message=message, fix=fix, level="warning"))
    return found


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
            removal.remove_empty(top, str(folder))
        _replace_file(top, Path(index.name), format_index(locks, files=files, tool=tool))
    except OSError as error:
        for site in new:  # of a lock that could not be written no empty folder stays
            folder = _name_site_folder(index, site)
            with suppress(OSError):
                removal.remove_empty(top, str(folder))
                removal.remove_empty(top, str(folder.parent))
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
        removal.remove(_name_site_folder(index, site), below=index.parent.resolve())
    return locks, files


def _name_site_folder(index: Path, site: str) -> Path:
    """Return the folder of a site's files, relative to that of the index."""
    return name_site_folder(index, site).relative_to(index.parent)


def _compute_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def _replace_file(top: Path, path: Path, text: str) -> None:
    """Replace a file below a folder atomically; without text it is removed."""
    if not text:
        removal.remove(path, below=top)
        return
    draft = name_draft(path)
    try:
        tree.write(top, str(draft), text.encode())
        tree.move(top, str(draft), top, str(path))
    finally:
        removal.remove(draft, below=top)
