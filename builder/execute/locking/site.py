"""The lock of one site: the base image, then conda's packages, then pip's, each on what came before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from builder.compile.content import base_registry
from builder.execute.locking.base import keeps_torch, lock_base
from builder.execute.locking.conda import lock_conda, virtual_packages
from builder.execute.locking.pip import Interpreter, lock_pip
from builder.execute.locking.provided import of_conda
from builder.execute.locking.session import Session
from builder.model.finding import ConfigError, Finding, Place, UnsupportedError
from builder.model.lock import BaseLock, Lock, PipFile
from builder.model.lock_files import read_conda
from builder.model.pylock import write_pylock
from builder.model.target import Target
from builder.resolve.lock import asked_of
from builder.resolve.target import OWN_CONDA

# The C library of the oldest systems that current builds of torch and of conda-forge are made for.
USUAL_GLIBC = "2.28"


@dataclass(frozen=True, kw_only=True)
class Locked:
    """A lock with the text of its two files (empty: there is nothing for it), and what is worth knowing of it."""

    lock: Lock
    conda: str
    pip: str
    findings: tuple[Finding, ...] = ()


def lock_site(target: Target, *, session: Session) -> Locked:
    """Lock a target; raises UnsupportedError, StepError or ConfigError with the reason why it cannot be."""
    asked, at = asked_of(target), Place(file=target.recipe.file)
    runtimes = (target.site.runtime.command, "apptainer", "singularity")
    base = lock_base(
        target.base,
        own=base_registry(target)[1],
        name=asked.base,
        packages=asked.place == "base",
        runtimes=runtimes,
        session=session,
    )
    glibc = base.glibc or USUAL_GLIBC
    virtual = virtual_packages(asked, glibc=glibc) if asked.place == "conda" else ()
    text = ""
    if asked.conda:
        text = lock_conda(asked, virtual=virtual, folder=target.recipe.folder, at=at, session=session)
    packages = read_conda(text, file=Path("pixi.lock")) if text else ()
    lock = Lock(
        site=target.site.name, recipe=target.recipe.digest, tool=target.context.tool, asked=asked, base=base,
        virtual=virtual, conda=packages,
    )  # fmt: skip
    if not (asked.torch or asked.pip):
        return Locked(lock=lock, conda=text, pip="", findings=tuple(_findings(target, base=base)))
    python = _python(lock, at=at)
    files = lock_pip(
        asked,
        target=Interpreter(python=python, arch=asked.arch, glibc=glibc),
        torch_index=target.environment.torch.index if target.environment.torch else "",
        provided=of_conda(packages) if asked.place == "conda" else base.provides,
        at=at,
        session=session,
    )
    _no_commits(target, files=files, at=at)
    whole = Lock(**{**vars(lock), "pip": files})
    pip = write_pylock(files, python=".".join(python.split(".")[:2]))
    return Locked(lock=whole, conda=text, pip=pip, findings=tuple(_findings(target, base=base)))


def _python(lock: Lock, *, at: Place) -> str:
    if lock.python:
        return lock.python
    message = f"the Python of '{lock.base.reference}' is not known: wheels cannot be chosen for it"
    fix = "add 'python=3.12' to the dependencies, or give the image as a file (--base image.sif), which can be asked"
    raise ConfigError(Finding(code="lock-python", message=message, at=at, fix=fix))


def _no_commits(target: Target, *, files: tuple[PipFile, ...], at: Place) -> None:
    """cotainr and tykky have one call of pip, which takes no commits among hashes."""
    commits = [file.name for file in files if file.kind == "vcs"]
    if commits and target.backend in OWN_CONDA:
        message = (
            f"'{commits[0]}' comes from version control: {target.backend} cannot install it among files with hashes"
        )
        fix = "name a release or the address of a wheel, or use another backend or site"
        raise UnsupportedError(Finding(code="lock-commit", message=message, at=at, fix=fix))


def _findings(target: Target, *, base: BaseLock) -> list[Finding]:
    found = []
    site, reference = target.site.name, base.reference
    if not base.digest:
        message = f"{site}: the base image '{reference}' is locked by its name alone: {base.why}"
        fix = "lock where it can be reached; what lies under the name may change"
        found.append(Finding(code="lock-base", message=message, fix=fix, level="warning"))
    if not base.glibc:
        message = f"{site}: the glibc of '{reference}' is not known: files for glibc {USUAL_GLIBC} are locked"
        fix = "give the image as a file (--base image.sif) where Apptainer is, so that it can be asked"
        found.append(Finding(code="lock-glibc", message=message, fix=fix, level="warning"))
    if target.environment.place == "base" and not keeps_torch(base):
        message = f"{site}: of the packages in '{reference}' only {_names(base)} is known: the others may be replaced"
        fix = "name the image as a file, in a site of your own, where Apptainer is: it can be asked then"
        found.append(Finding(code="lock-provided", message=message, fix=fix, level="warning"))
    return found


def _names(base: BaseLock) -> str:
    return ", ".join(sorted(base.provides)) or "none"
