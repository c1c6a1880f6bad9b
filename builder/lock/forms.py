"""A lock in the forms of other tools: pylock.toml, requirements.txt, conda-lock.yml and lists of conda packages.

What a form cannot say is refused: no package and no hash is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from builder.layers.conda_solver import CondaPackage
from builder.model.finding import Finding, Location, UnsupportedError
from builder.model.lock import Lock, PipFile
from builder.parse.lock_files import write_pylock
from builder.parse.yaml import to_yaml

Form = Literal["pylock", "requirements", "conda-lock", "explicit"]


def write_form(lock: Lock, *, form: Form, file: str) -> str:
    """Write a lock in a form; `file` is the recipe's. Raises UnsupportedError for what the form cannot say."""
    faults = [*_list_faults(lock, form=form, at=Location(file=file))]
    if faults:
        raise UnsupportedError(*faults)
    return WRITERS[form](lock, file)


def report_base(lock: Lock, *, file: str) -> tuple[Finding, ...]:
    """What a reader of the form has to know: a base image has packages that no lock lists."""
    if lock.asked.place != "base":
        return ()
    message = f"the packages in '{lock.base.reference}' are not in it: the others are installed next to them"
    fix = "use it in that image alone, or lock with python: env below container:"
    return (Finding(code="lock-form", message=message, at=Location(file=file), fix=fix, level="warning"),)


def _list_faults(lock: Lock, *, form: Form, at: Location) -> Iterator[Finding]:
    def refuse(what: str, fix: str) -> Finding:
        message = f"the form '{form}' cannot say all of the lock for '{lock.site}': {what}"
        return Finding(code="lock-form", message=message, at=at, fix=fix)

    if lock.conda and form in ("pylock", "requirements"):
        yield refuse(f"it has {len(lock.conda)} conda packages", "use --format conda-lock")
    if not lock.conda and form in ("explicit", "conda-lock"):
        yield refuse("it has no conda packages, and so no Python", "use --format pylock")
    elif lock.pip and form == "explicit":
        yield refuse(f"it has {len(lock.pip)} Python packages of pip", "use --format conda-lock")
    if commits := [file.name for file in lock.pip if file.kind == "vcs"]:
        fix = "name a release of it, or the address of a wheel, and lock again"
        if form != "pylock":
            yield refuse(f"'{commits[0]}' is a commit, which has no hash", fix)
    urls = [*(one.url for one in lock.conda), *(one.url for one in lock.pip)]
    local = [url for url in urls if url.startswith(("file:", "git+file:"))]
    if local:
        yield refuse(f"'{local[0]}' is a file of this machine", "lock it from an index or a channel with an address")


def _write_pylock(lock: Lock, file: str) -> str:
    del file
    return write_pylock(lock.pip, python=".".join(lock.python.split(".")[:2]))


def _write_requirements(lock: Lock, file: str) -> str:
    arch, python = lock.asked.arch, ".".join(lock.python.split(".")[:2])
    head = f"# Written by `recipe lock {lock.site} {file} --format requirements`: Python {python}, Linux, {arch}"
    options = [line for line in lock.asked.options if not line.startswith("--require-hashes")]
    return "".join(f"{line}\n" for line in (head, *options, *map(_write_requirement, lock.pip)))


def _write_requirement(file: PipFile) -> str:
    """The line of a file; torch has an index of its own, which no line can name."""
    if not file.torch:
        return file.requirement
    return f"{file.name} @ {file.url} --hash=sha256:{file.sha256}"


def _write_explicit(lock: Lock, file: str) -> str:
    head = f"# Written by `recipe lock {lock.site} {file} --format explicit`"
    lines = (f"{package.address}#sha256:{package.sha256}" for package in lock.conda)
    return "".join(f"{line}\n" for line in (head, f"# platform: {lock.platform}", "@EXPLICIT", *lines))


def _write_conda_lock(lock: Lock, file: str) -> str:
    """The unified lock of conda-lock, version 1."""
    channels = [name for name in lock.asked.channels if name != "nodefaults"]
    metadata = {
        "content_hash": {lock.platform: lock.recipe},
        "channels": [{"url": name, "used_env_vars": []} for name in channels],
        "platforms": [lock.platform],
        "sources": [file],
    }
    packages = [_describe_conda(one, platform=lock.platform) for one in lock.conda]
    packages += [_describe_pip(one, platform=lock.platform) for one in lock.pip]
    return to_yaml({"version": 1, "metadata": metadata, "package": packages})


def _describe_conda(package: CondaPackage, *, platform: str) -> dict[str, object]:
    hashes = {"md5": package.md5} if package.md5 else {}
    needs = dict(text.partition(" ")[::2] for text in package.depends)
    return _describe(
        package.name, package.version, "conda", platform=platform, needs=needs, url=package.address,
        hashes=hashes | {"sha256": package.sha256},
    )  # fmt: skip


def _describe_pip(file: PipFile, *, platform: str) -> dict[str, object]:
    hashes = {"sha256": file.sha256}
    return _describe(file.name, file.version, "pip", platform=platform, needs={}, url=file.url, hashes=hashes)


def _describe(
    name: str, version: str, manager: str, *, platform: str, needs: Mapping[str, str], url: str,
    hashes: Mapping[str, str],
) -> dict[str, object]:  # fmt: skip
    return {
        "name": name, "version": version, "manager": manager, "platform": platform, "dependencies": dict(needs),
        "url": url, "hash": dict(hashes), "category": "main", "optional": False,
    }  # fmt: skip


WRITERS: Mapping[Form, Callable[[Lock, str], str]] = {
    "pylock": _write_pylock,
    "requirements": _write_requirements,
    "conda-lock": _write_conda_lock,
    "explicit": _write_explicit,
}
