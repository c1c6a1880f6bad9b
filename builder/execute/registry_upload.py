"""Images into registries: a SIF as `oras://` of Apptainer reads it, and documents that refer to it.

https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md, "Push" and "Listing Referrers"
https://github.com/opencontainers/image-spec/blob/v1.1.0/manifest.md, `subject` and `artifactType`
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias
from urllib.parse import urljoin, urlsplit

from builder.layers.registry import Answer, Logins, Registry, RegistryError, parse_origin
from builder.sif.bounded import hash_file

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
SIF_CONFIG = "application/vnd.sylabs.sif.config.v1+json"  # as Apptainer's own push
SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"
TITLE = "org.opencontainers.image.title"
SECONDS = 600.0  # for the registry to hash what it was sent
NOTHING = b"{}"
Entry = dict[str, Any]
Body: TypeAlias = "io.BytesIO | CountedFile"


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file that is attached to an image: its name, its media type and its text."""

    name: str
    kind: str
    content: bytes


@dataclass(frozen=True, kw_only=True)
class SifToPush:
    """A SIF with its size in bytes, its digest, and the manifest that names it in a registry."""

    path: Path
    size: int
    digest: str

    @classmethod
    def read(cls, path: Path) -> SifToPush:
        """Read a file; raises OSError."""
        return cls(path=path, size=path.stat().st_size, digest=f"sha256:{hash_file(path)}")

    @property
    def manifest(self) -> Entry:
        """The manifest as Apptainer's own push writes it."""
        config = {"mediaType": SIF_CONFIG, "digest": f"sha256:{hashlib.sha256(NOTHING).hexdigest()}", "size": 2}
        named = {TITLE: self.path.name}
        layer = {"mediaType": SIF_LAYER, "digest": self.digest, "size": self.size, "annotations": named}
        return {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}

    @property
    def entry(self) -> Entry:
        """The manifest's media type, digest and size."""
        return _make_entry(self.manifest, kind=MANIFEST)[0]


class CountedFile:
    """A file that reports how much of it was read."""

    def __init__(self, file: IO[bytes], *, report: Callable[[int], None]) -> None:
        self.file, self.report, self.done = file, report, 0

    def read(self, size: int = -1) -> bytes:
        """Read some bytes; larger pieces than http.client asks for."""
        content = self.file.read(max(size, 1 << 20) if size >= 0 else -1)
        self.done += len(content)
        self.report(self.done)
        return content


class Upload:
    """The upload of one image; raises RegistryError, and OSError where the registry cannot be reached."""

    def __init__(self, reference: str, *, logins: Logins, environment: Mapping[str, str] = os.environ) -> None:
        """`reference` is HOST/NAME:TAG with any scheme before it."""
        self.registry = Registry(reference, logins=logins, environment=environment, actions="pull,push")
        self.authorization = ""

    def find_digest(self) -> str:
        """Return the digest that the tag has now, "" where it is free."""
        answer = self.registry.fetch_manifest("HEAD")
        if answer.status == 404:
            return ""
        if answer.status != 200:
            raise RegistryError(f"the registry answered {answer.status}")
        return answer.headers.get("Docker-Content-Digest") or "unknown"

    def push_image(self, image: SifToPush, *, report: Callable[[int], None]) -> None:
        """Upload a SIF and name it. A file that is there already is not sent."""
        self.push_bytes(NOTHING, kind=SIF_CONFIG)
        if not self._has(image.digest):
            with image.path.open("rb") as file:
                self._send_blob(CountedFile(file, report=report), size=image.size, digest=image.digest)
        self._push_manifest(image.manifest, kind=MANIFEST, name=self.registry.tag)

    def attach(self, document: Document, *, to: Entry) -> Entry:
        """Upload a document that refers to an image; return the entry of its manifest."""
        layer = {**self.push_bytes(document.content, kind=document.kind), "annotations": {TITLE: document.name}}
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": document.kind,
            "config": self.push_bytes(NOTHING, kind=EMPTY),
            "layers": [layer],
            "subject": {name: to[name] for name in ("mediaType", "digest", "size")},
        }
        entry, answer = self._push_manifest(manifest, kind=MANIFEST, name="")
        entry["artifactType"] = document.kind
        if not answer.headers.get("OCI-Subject"):
            self._list_referrer(entry, to=str(to["digest"]))
        return entry

    def push_bytes(self, content: bytes, *, kind: str) -> Entry:
        """Upload a small file; return its entry."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if not self._has(digest):
            self._send_blob(io.BytesIO(content), size=len(content), digest=digest)
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    def _list_referrer(self, entry: Entry, *, to: str) -> None:
        """Add a manifest to the list of referrers of another; it has a tag where a registry keeps none itself."""
        tag = to.replace(":", "-")
        answer = self._send("GET", f"manifests/{tag}", accept=INDEX)
        if answer.status not in (200, 404):
            raise RegistryError(f"the registry answered {answer.status} for the list of what refers to the image")
        found = _read_entries(answer.body) if answer.status == 200 else []
        kept = [one for one in found if one.get("digest") != entry["digest"]]
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [*kept, entry]}
        self._push_manifest(index, kind=INDEX, name=tag)

    def _push_manifest(self, manifest: Mapping[str, Any], *, kind: str, name: str) -> tuple[Entry, Answer]:
        """Upload a manifest under a tag, or without a name by its digest."""
        entry, content = _make_entry(manifest, kind=kind)
        answer = self._send(
            "PUT", f"manifests/{name or entry['digest']}", data=io.BytesIO(content), size=len(content), kind=kind
        )
        if answer.status != 201:
            raise RegistryError(f"the registry answered {answer.status} for a manifest")
        return entry, answer

    def _has(self, digest: str) -> bool:
        return self._send("HEAD", f"blobs/{digest}").status == 200

    def _send_blob(self, data: Body, *, size: int, digest: str) -> None:
        begun = self._send("POST", "blobs/uploads/", data=io.BytesIO(b""), size=0)
        place = begun.headers.get("Location") or ""
        if begun.status != 202 or not place:
            raise RegistryError(f"the registry answered {begun.status} for an upload")
        address = urljoin(begun.address, place)
        joined = "&" if urlsplit(address).query else "?"
        kind = "application/octet-stream"
        answer = self._send("PUT", f"{address}{joined}digest={digest}", data=data, size=size, kind=kind)
        if answer.status != 201:
            raise RegistryError(f"the registry answered {answer.status} at the end of an upload")

    def _send(
        self, method: str, place: str, *, data: Body | None = None, size: int = 0, kind: str = "", accept: str = ""
    ) -> Answer:
        """Send one request, with the login as soon as the registry has required it, to the registry alone."""
        own = f"{self.registry.scheme}://{self.registry.host}/v2/{self.registry.name}/"
        address = urljoin(own, place)
        answer = self._send_once(method, address, data=data, size=size, kind=kind, accept=accept)
        if answer.status != 401 or parse_origin(address) != parse_origin(own) or self.authorization:
            return answer
        self.authorization = self.registry.make_authorization(answer)
        if isinstance(data, io.BytesIO):  # the upload of a file began with the login
            data.seek(0)
        return self._send_once(method, address, data=data, size=size, kind=kind, accept=accept)

    def _send_once(self, method: str, address: str, *, data: Body | None, size: int, kind: str, accept: str) -> Answer:
        own = parse_origin(address) == parse_origin(f"{self.registry.scheme}://{self.registry.host}")
        if not own and urlsplit(address).scheme != "https":
            raise RegistryError("the registry leads to a server without TLS")
        request = urllib.request.Request(address, data=data, method=method)
        if data is not None:
            request.add_unredirected_header("Content-Length", str(size))
            request.add_unredirected_header("Content-Type", kind or "application/octet-stream")
        if accept:
            request.add_header("Accept", accept)
        if own and self.authorization:
            request.add_unredirected_header("Authorization", self.authorization)
        try:
            return self.registry.open(request, seconds=SECONDS)
        except urllib.error.URLError as error:
            raise RegistryError(f"the registry ended the connection: {error.reason}") from None
        except http.client.HTTPException as error:
            raise RegistryError(f"the registry does not speak HTTP: {type(error).__name__}") from None


def _make_entry(manifest: Mapping[str, Any], *, kind: str) -> tuple[Entry, bytes]:
    content = json.dumps(manifest, sort_keys=True).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return {"mediaType": kind, "digest": digest, "size": len(content)}, content


def _read_entries(body: bytes) -> list[Entry]:
    try:
        found = json.loads(body)["manifests"]
        return [dict(one) for one in found]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RegistryError(
            "the registry has another thing in the place of the list of what refers to an image"
        ) from None
