"""The certificates that every client of a build trusts: uv, py-rattler, our own requests, engines, pip in a container.

The file and the folders that the user names; else the store of this machine; else those that a client brings itself.
engine.sh does the same for a build in a container.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

FILE, FOLDERS = "SSL_CERT_FILE", "SSL_CERT_DIR"
NAMES = (FILE, "PIP_CERT", "REQUESTS_CA_BUNDLE")  # the first one that is set decides
SWITCHES = ("UV_SYSTEM_CERTS", "UV_NATIVE_TLS")
OFF = ("0", "false", "no", "off", "f", "n")  # as uv reads a switch
# Where Linux systems have their store: Debian, Fedora, openSUSE, older Fedora, Alpine (Go: crypto/x509/root_linux.go).
STORES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
LARGEST = 4 << 20  # bytes: a store is 220 KB


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """A file and folders of certificates; both are empty where each client trusts its own."""

    file: str = ""
    folders: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """What names them to uv, to OpenSSL and to programs in Go."""
        found = {FILE: self.file, FOLDERS: os.pathsep.join(self.folders)}
        return {name: value for name, value in found.items() if value}


def find_certificates(environment: Mapping[str, str]) -> Certificates:
    """Return what the user's variables name, else the store of this machine unless uv's switch says no."""
    file = next((value for name in NAMES if (value := environment.get(name))), "")
    folders = tuple(part for part in environment.get(FOLDERS, "").split(os.pathsep) if part)
    if file and os.path.isdir(file):  # REQUESTS_CA_BUNDLE and PIP_CERT may name a folder
        file, folders = "", (file, *folders)
    if file or folders:
        return Certificates(file=file, folders=folders)
    switch = next((value for name in SWITCHES if (value := environment.get(name))), "")
    return Certificates(file="" if switch.lower() in OFF else find_store())


def find_store() -> str:
    """Return the file of this machine's own store, "" if there is none."""
    return next((name for name in STORES if _has_text(name)), "")


def _has_text(name: str) -> bool:
    try:
        return os.path.isfile(name) and os.access(name, os.R_OK) and os.path.getsize(name) > 0
    except OSError:
        return False


@cache
def make_tls_context(certificates: Certificates, *, verify: bool = True) -> ssl.SSLContext:
    """Return the settings of a request; the files are read once, which takes 25 ms.

    Python's own default would add the system's folder to a file that the user names, and no other client does that.
    """
    import ssl

    if certificates == Certificates():
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a certificate that is named is trusted, as by uv
        names = [certificates.file] if certificates.file else []
        for path in dict.fromkeys(os.path.realpath(name) for name in [*names, *_list_files(certificates.folders)]):
            _load_file(context, path)
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def has_certificates(certificates: Certificates) -> bool:
    """Whether a client that is given these trusts any server; where none is named, it trusts its own."""
    return certificates == Certificates() or bool(make_tls_context(certificates).cert_store_stats()["x509"])


def _load_file(context: ssl.SSLContext, path: str) -> None:
    try:
        if os.path.isfile(path) and os.path.getsize(path) <= LARGEST:
            context.load_verify_locations(cafile=path)
    except OSError:  # ssl.SSLError too: it has no certificates
        return


def _list_files(folders: tuple[str, ...]) -> list[str]:
    found = []
    for folder in folders:
        try:
            found += sorted(str(path) for path in Path(folder).iterdir())
        except OSError:
            continue
    return found
