"""What a registry says of an image: the digest that a tag stands for now."""

from __future__ import annotations

import base64
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path

TIMEOUT = 15.0  # seconds to wait for a registry
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
REFERENCE = re.compile(r"docker://(?:(?P<host>[^/]+[.:][^/]*|localhost)/)?(?P<name>[^:@]+)(?::(?P<tag>[^@]+))?")


def pinned(reference: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The reference with the digest that its tag stands for now; None where the registry does not say."""
    found = REFERENCE.fullmatch(reference)
    if found is None:
        return None
    host, name, tag = found["host"] or "docker.io", found["name"], found["tag"] or "latest"
    if host == "docker.io" and "/" not in name:
        name = f"library/{name}"
    plain = any(environment.get(f"{engine}_NOHTTPS") for engine in ("APPTAINER", "SINGULARITY"))
    server = "registry-1.docker.io" if host == "docker.io" else host
    address = f"{'http' if plain else 'https'}://{server}/v2/{name}/manifests/{urllib.parse.quote(tag)}"
    digest = _ask(address, host=host, environment=environment)
    return f"docker://{host}/{name}@{digest}" if digest else None


def _ask(address: str, *, host: str, environment: Mapping[str, str]) -> str | None:
    headers = {"Accept": MANIFESTS}
    for _ in range(2):
        request = urllib.request.Request(address, headers=headers, method="HEAD")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                digest = answer.headers.get("Docker-Content-Digest") or ""
                return digest if DIGEST.fullmatch(digest) else None
        except urllib.error.HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate") or ""
            if error.code != 401 or "Authorization" in headers:
                return None
            headers["Authorization"] = _authorization(challenge, login=_login(host, environment))
            if not headers["Authorization"]:
                return None
        except (OSError, ValueError):
            return None
    return None


def _authorization(challenge: str, *, login: str) -> str:
    kind, _, rest = challenge.partition(" ")
    if kind.lower() == "basic":
        return f"Basic {login}" if login else ""
    words = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    realm = words.pop("realm", "")
    if not realm.startswith(("https://", "http://")):
        return ""
    request = urllib.request.Request(f"{realm}?{urllib.parse.urlencode(words)}")
    if login:
        request.add_header("Authorization", f"Basic {login}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            document = json.load(answer)
    except (OSError, ValueError):
        return ""
    token = document.get("token") or document.get("access_token")
    return f"Bearer {token}" if isinstance(token, str) else ""


def _login(host: str, environment: Mapping[str, str]) -> str:
    """Name and password for a registry, where the engines keep them; never printed, never stored."""
    for engine in ("APPTAINER", "SINGULARITY"):
        name, word = (environment.get(f"{engine}_DOCKER_{part}") for part in ("USERNAME", "PASSWORD"))
        if name and word:
            return base64.b64encode(f"{name}:{word}".encode()).decode()
    home = Path(environment.get("HOME", "/"))
    for file in (home / ".apptainer/docker-config.json", home / ".docker/config.json"):
        try:
            known = json.loads(file.read_text(encoding="utf-8")).get("auths", {})
            for key in (host, f"https://{host}", "https://index.docker.io/v1/" if host == "docker.io" else host):
                if isinstance(known.get(key, {}).get("auth"), str):
                    return str(known[key]["auth"])
        except (OSError, ValueError, AttributeError):
            continue
    return ""
