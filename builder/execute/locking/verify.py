"""Whether files of this machine are those of a lock: py-rattler checks what it downloads, and no local file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from builder.execute.digest import sha256_of
from builder.model.finding import Finding, Place, StepError
from builder.model.lock import CondaPackage, PipFile


def local_path(url: str) -> Path | None:
    """The path that a file:// address or a plain path names, None for another address."""
    if url.startswith("/"):
        return Path(url)
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def verify_local(files: Iterable[CondaPackage | PipFile]) -> None:
    """Check every file of this machine against the lock; raises StepError with all that differ or are gone."""
    findings = []
    for file in files:
        path = local_path(file.url)
        if path is None or not file.sha256:
            continue
        try:
            found = sha256_of(path)
        except OSError as error:
            message = f"'{file.name}' is locked to a file that cannot be read: {(error.strerror or str(error)).lower()}"
            fix = "bring it back, or run `recipe lock SITE ENV` again"
            findings.append(Finding(code="lock-file", message=message, at=Place(file=str(path)), fix=fix))
            continue
        if found != file.sha256:
            findings.append(mismatch(file, found=found, at=str(path)))
    if findings:
        raise StepError(*findings)


def mismatch(file: CondaPackage | PipFile, *, found: str, at: str) -> Finding:
    """The finding for a file that is not the locked one."""
    message = f"'{file.name}' {file.version} is not the file that was locked: sha256 {found}, locked {file.sha256}"
    fix = "do not use it; lock again only if you know why it was replaced"
    return Finding(code="lock-hash", message=message, at=Place(file=at), fix=fix)
