"""The digest of an image of a registry: one HEAD request of the distribution protocol, nothing is downloaded.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from builder.execute.locking.session import Session

SECONDS = 20.0
ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
LOOPBACK = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$")
HUB = "registry-1.docker.io"


def parts_of(reference: str) -> tuple[str, str, str]:
    """Host, name and tag (or digest) of a reference as Docker reads it."""
    name = reference.partition("://")[2]
    first, slash, rest = name.partition("/")
    named = bool(slash) and ("." in first or ":" in first or first == "localhost")
    host, path = (first, rest) if named else ("docker.io", name)
    path, at, digest = path.partition("@")
    path, _, tag = path.partition(":")
    if host == "docker.io":
        host, path = HUB, path if "/" in path else f"library/{path}"
    return host, path, digest if at else tag or "latest"


def registry_digest(reference: str, *, session: Session) -> tuple[str, str]:
    """The digest of an image's manifest, and where it is not known the reason why."""
    scheme = reference.partition("://")[0]
    host, name, tag = parts_of(reference)
    if DIGEST.fullmatch(tag):
        return tag, ""
    if scheme not in ("docker", "oras"):
        return "", f"{scheme}:// images have no digest that can be asked for"
    if session.offline:
        return "", "the registry was not asked (--offline)"
    address = f"{'http' if LOOPBACK.fullmatch(host) else 'https'}://{host}/v2/{name}/manifests/{tag}"
    try:
        found = _head(address, host=host, environment=session.environment)
    except urllib.error.HTTPError as error:
        return "", f"the registry answered {error.code}"
    except (OSError, ValueError):
        return "", "the registry could not be reached"  # the same words whatever the network says: they are kept
    return (found, "") if DIGEST.fullmatch(found) else ("", "the registry names no digest")


def _head(address: str, *, host: str, environment: Mapping[str, str]) -> str:
    """Ask for the manifest; where the registry wants a token, fetch it as it says."""
    login = _login(host, environment=environment)
    try:
        return _request(address, authorization=f"Basic {login}" if login else "", environment=environment)
    except urllib.error.HTTPError as error:
        challenge = dict(re.findall(r'(\w+)="([^"]*)"', error.headers.get("WWW-Authenticate") or ""))
        if error.code != 401 or not challenge.get("realm", "").startswith("https://"):
            raise
    query = urlencode({key: challenge[key] for key in ("service", "scope") if key in challenge})
    headers = {"Authorization": f"Basic {login}"} if login else {}
    request = urllib.request.Request(f"{challenge['realm']}?{query}", headers=headers)
    with _opener(environment).open(request, timeout=SECONDS) as answer:
        content = json.loads(answer.read(1_000_000))
    token = content.get("token") or content.get("access_token") or ""
    return _request(address, authorization=f"Bearer {token}", environment=environment)


def _request(address: str, *, authorization: str, environment: Mapping[str, str]) -> str:
    headers = {"Accept": ACCEPT} | ({"Authorization": authorization} if authorization else {})
    request = urllib.request.Request(address, headers=headers, method="HEAD")
    with _opener(environment).open(request, timeout=SECONDS) as answer:
        return str(answer.headers.get("Docker-Content-Digest") or "")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the credentials to another host: it is an answer like any other."""

    def redirect_request(self, *_arguments: object, **_options: object) -> None:
        return None


def _opener(environment: Mapping[str, str]) -> urllib.request.OpenerDirector:
    bundle = environment.get("SSL_CERT_FILE") or environment.get("REQUESTS_CA_BUNDLE") or None
    context = ssl.create_default_context(cafile=bundle)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect)


def _login(host: str, *, environment: Mapping[str, str]) -> str:
    """user:password of a registry, base64, from the engines' variables or Docker's file; empty where there is none."""
    for program in ("APPTAINER", "SINGULARITY"):
        user, password = (environment.get(f"{program}_DOCKER_{name}", "") for name in ("USERNAME", "PASSWORD"))
        if user and password:
            return base64.b64encode(f"{user}:{password}".encode()).decode()
    folder = environment.get("DOCKER_CONFIG") or str(Path(environment.get("HOME") or "/") / ".docker")
    try:
        content = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        names = (host, f"https://{host}", "https://index.docker.io/v1/" if host == HUB else host)
        return next((str(content["auths"][name].get("auth", "")) for name in names if name in content["auths"]), "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
