"""The GPU audit of whatever a path names."""

from __future__ import annotations

from pathlib import Path

from builder.audit.content import AuditError
from builder.audit.distribution import Inventory
from builder.model.finding import ConfigError, Finding, Location
from builder.model.text import exists, sanitize
from builder.parse.yaml import suggest_path
from builder.sif.archive import is_archive

KINDS = "a wheel, a conda package, a folder, a SIF, a squashfs file or a docker-archive"
PACKED = ("wheel", "conda")  # kinds that are one package
TYKKY = ("container.sif", "img.sqfs")  # the parts of one of its folders


def read_inventory(path: Path) -> Inventory:
    """Read every ELF file of what a path names; raises ConfigError where it is nothing that the audit reads."""
    name = sanitize(str(path), limit=400)
    if not exists(path):
        fix = suggest_path(path, other=f"give the path of {KINDS}")
        raise _make_error("path-missing", f"'{name}' does not exist", path, fix=fix)
    try:
        return _read(path)
    except AuditError as error:
        message = f"'{name}' cannot be read: {sanitize(str(error), limit=400)}"
        raise _make_error("audit-unreadable", message, path) from None


def _read(path: Path) -> Inventory:
    # One of them is used: the others need not be imported.
    if path.is_dir() and (parts := [part for name in TYKKY if (part := path / name).is_file()]):
        from builder.audit.sif_image import read_image

        return read_image(*parts)
    if path.is_dir():
        from builder.audit.installed import read_folder

        return read_folder(path)
    if path.suffix in (".whl", ".zip"):
        from builder.audit.wheel import read_wheel

        return read_wheel(path)
    if path.name.endswith((".conda", ".tar.bz2")):
        from builder.audit.conda_package import read_conda

        return read_conda(path)
    if is_archive(path):
        from builder.audit.docker_archive import read_archive

        return read_archive(path)
    from builder.audit.sif_image import read_image

    return read_image(path)


def check_whole(inventory: Inventory, path: Path) -> None:
    """Raise ConfigError for a package with a file that cannot be read: no site can be judged by the rest of it."""
    if inventory.kind not in PACKED or not inventory.unread:
        return
    one, name = inventory.unread[0], sanitize(str(path), limit=400)
    message = f"'{name}' is damaged: {sanitize(one.path, limit=200)}: {sanitize(one.reason, limit=200)}"
    raise _make_error("audit-unreadable", message, path, fix="download or build the package again")


def _make_error(code: str, message: str, path: Path, *, fix: str = f"give the path of {KINDS}") -> ConfigError:
    return ConfigError(Finding(code=code, message=message, at=Location(file=sanitize(str(path), limit=400)), fix=fix))
