"""The client for registries: it reads the digest of an image's name with the user's login, and downloads nothing.

What is uploaded is in execute/registry_upload.py, with the same connection and logins.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
https://distribution.github.io/distribution/spec/auth/token/

A login is sent to its registry alone, and to that registry's own token server: over TLS, and over plain HTTP only to
this machine itself. No redirect carries it to another server.

The password may be kept by a program of the desktop or the cloud, docker-credential-NAME, which is asked.
https://docs.docker.com/reference/cli/docker/login/#credential-stores
https://apptainer.org/docs/user/main/docker_and_oci.html#authentication
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urljoin, urlsplit

from ..sif.errors import LayeringError
from ..sif.programs import ask, find_system_program
from .certificates import find_certificates, make_tls_context
from .reference import DIGEST, HUB, HUB_NAMES, HUB_SERVER, parse_reference

Login = tuple[str, str]  # name and password; the name TOKEN marks a token that a password was exchanged for
Logins = Callable[[str], "Login | None"]  # called with a host, and only after its registry has required a login

TOKEN = "<token>"  # https://docs.docker.com/reference/cli/docker/login/#credential-helper-protocol
SECONDS = 20.0  # to wait for one answer to begin or to go on
LONGEST = 60.0  # seconds for everything that is asked about one image
ANSWER = 4 * 1024 * 1024  # bytes: the limit of registries for a manifest, and ours for any response
REDIRECTS = 5
MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")
PORTS = {"https": 443, "http": 80}
# Usual names of token servers: auth.docker.io, gitlab.example.org for registry.example.org.
TOKEN_SERVERS = ("auth", "authn", "gitlab", "login", "sso", "token", "tokens")
SUFFIX = re.compile(r"(ac|co|com|edu|go|gov|ne|net|or|org)\.[a-z]{2}|[^.]*")  # not one owner's: co.uk, com


class RegistryError(Exception):
    """A registry that does not answer; the message is the same each time and has nothing of its response."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A server's response, and the address after the last redirect."""

    status: int
    headers: Message
    body: bytes
    address: str


def fetch_manifest_digest(reference: str, *, logins: Logins, environment: Mapping[str, str] = os.environ) -> str:
    """Return the digest of the manifest that a name points to; raises RegistryError."""
    outcome: list[str | Exception] = []

    def ask() -> None:
        try:
            outcome.append(Registry(reference, logins=logins, environment=environment).fetch_digest())
        except RegistryError as error:
            outcome.append(error)
        except (OSError, ValueError, http.client.HTTPException):
            outcome.append(RegistryError("the registry could not be reached"))
        except Exception as error:  # of the callback; raised below
            outcome.append(error)

    # A server could send one byte now and then, and no single wait would be long.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(LONGEST)
    found = outcome[0] if outcome else RegistryError("the registry took too long to answer")
    if isinstance(found, Exception):
        raise found
    return found


class Registry:
    """One image of one registry; `scheme` is http for a registry of this machine without TLS.

    `actions` is what a token is requested for: pull, or pull and push.
    """

    def __init__(
        self, reference: str, *, logins: Logins, environment: Mapping[str, str], actions: str = "pull"
    ) -> None:
        self.host, self.name, self.tag = parse_reference(reference)
        self.logins, self.actions = logins, actions
        tls = urllib.request.HTTPSHandler(context=make_tls_context(find_certificates(environment)))
        # Requests to this machine use no proxy.
        proxies = [urllib.request.ProxyHandler({})] if self._is_own() else []
        self.opener = urllib.request.build_opener(tls, NoRedirect, *proxies)
        self.scheme = "https"

    def _is_own(self) -> bool:
        return LOOPBACK.fullmatch(_split_address(f"https://{self.host}").hostname or "") is not None

    def fetch_digest(self) -> str:
        """Request the head of the manifest, and the manifest if that has no digest."""
        answer = self.fetch_manifest("HEAD")
        digest = answer.headers.get("Docker-Content-Digest") or ""
        own = parse_origin(answer.address) == parse_origin(self._make_address())
        if answer.status == 200 and own and DIGEST.fullmatch(digest):
            return digest
        if answer.status not in (200, 404, 405):
            raise RegistryError(f"the registry answered {answer.status}")
        answer = self.fetch_manifest("GET")
        if answer.status != 200:
            raise RegistryError(f"the registry answered {answer.status}")
        named = answer.headers.get("Docker-Content-Digest") or ""
        found = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
        if not answer.body or (named and named != found):
            raise RegistryError("the registry names another digest than that of what it sends")
        return found

    def _make_address(self) -> str:
        return f"{self.scheme}://{self.host}/v2/{self.name}/manifests/{quote(self.tag)}"

    def fetch_manifest(self, method: str) -> Answer:
        """Request the manifest or its head, with the login where one is required; raises RegistryError and OSError."""
        try:
            answer = self._ask(self._make_address(), method=method)
        except (urllib.error.URLError, ssl.SSLError) as error:
            reason = getattr(error, "reason", error)
            plain = isinstance(reason, ssl.SSLError) and not isinstance(reason, ssl.SSLCertVerificationError)
            if self.scheme == "http" or not (plain and self._is_own()):
                raise
            self.scheme = "http"
            answer = self._ask(self._make_address(), method=method)
        if answer.status != 401:
            return answer
        if parse_origin(answer.address) != parse_origin(self._make_address()):
            raise RegistryError("the registry leads to another server, and that wants a login")
        return self._ask(self._make_address(), method=method, authorization=self.make_authorization(answer))

    def make_authorization(self, answer: Answer) -> str:
        """Return the header that the registry requires; raises RegistryError without a login."""
        asked = [line.partition(" ") for line in answer.headers.get_all("WWW-Authenticate") or ()]
        kinds = {kind.lower(): dict(re.findall(r'(\w+)="([^"]*)"', rest)) for kind, _, rest in asked}
        login = self.logins(HUB if self.host == HUB_SERVER else self.host)
        if "bearer" in kinds:
            return f"Bearer {self._fetch_token(kinds['bearer'], login=login)}"
        if "basic" in kinds and login and login[0] != TOKEN:
            return _make_basic_header(login)
        raise RegistryError(f"the registry answered 401{'' if login else ', and there is no login for it'}")

    def _fetch_token(self, words: Mapping[str, str], *, login: Login | None) -> str:
        """Request a token to read this image from the server that the registry names."""
        realm = words.get("realm", "")
        parts = _split_address(realm)
        same = parse_origin(realm) == parse_origin(self._make_address())
        if parts.scheme != "https" and not (same and self._is_own()):
            raise RegistryError("the registry names a server of tokens without TLS")
        trusted = same or _is_own_realm(parts, host=self.host)
        # The scope is ours: a registry could ask for a token that opens more than this image.
        query = {name: value for name, value in parse_qsl(parts.query) if name != "scope"}
        query |= {"service": words["service"]} if "service" in words else {}
        query["scope"] = f"repository:{self.name}:{self.actions}"
        address = parts._replace(query="", fragment="").geturl()
        shown, data = login if trusted else None, b""
        if shown and shown[0] == TOKEN:
            form = {**query, "grant_type": "refresh_token", "client_id": "recipe", "refresh_token": shown[1]}
            shown, data = None, urlencode(form).encode()
        else:
            address = f"{address}?{urlencode(query)}"
        answer = self._ask(address, data=data, authorization=_make_basic_header(shown) if shown else "")
        try:
            document = json.loads(answer.body)
            token = document.get("token") or document.get("access_token")
        except (ValueError, AttributeError, RecursionError):
            token = None
        if answer.status == 200 and isinstance(token, str) and re.fullmatch(r"[\x21-\x7e]+", token):
            return token
        if login and not trusted:
            raise RegistryError("the registry wants its login on a server that does not belong to it")
        raise RegistryError(f"the registry answered 401{'' if login else ', and there is no login for it'}")

    def _ask(self, address: str, *, method: str = "GET", authorization: str = "", data: bytes = b"") -> Answer:
        """Send one request; redirects are followed without the headers for the first server."""
        for _ in range(REDIRECTS + 1):
            request = urllib.request.Request(address, data=data or None, method="POST" if data else method)
            request.add_header("Accept", MANIFESTS if "/manifests/" in address else "application/json")
            if authorization:
                request.add_unredirected_header("Authorization", authorization)
            answer = self.open(request)
            to = answer.headers.get("Location") or ""
            if answer.status not in (301, 302, 303, 307, 308) or not to or data:
                return answer
            following = urljoin(address, to)
            if parse_origin(following) != parse_origin(address):
                if _split_address(following).scheme != "https":
                    raise RegistryError("the registry leads to a server without TLS")
                authorization = ""
            address = following
        raise RegistryError("the registry leads from one server to the next without an end")

    def open(self, request: urllib.request.Request, *, seconds: float = SECONDS) -> Answer:
        """Send a request, and follow no redirect; raises OSError."""
        try:
            with self.opener.open(request, timeout=seconds) as got:
                return Answer(status=got.status, headers=got.headers, body=_read(got), address=request.full_url)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(status=error.code, headers=error.headers, body=b"", address=request.full_url)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Stop at a redirect: urllib would send the login to its target."""

    def redirect_request(self, *_arguments: object, **_options: object) -> None:
        return None


def _read(answer: http.client.HTTPResponse) -> bytes:
    until, parts, size = time.monotonic() + LONGEST, [], 0
    while part := answer.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > ANSWER or time.monotonic() > until:
            raise RegistryError("the registry answers with more than a manifest can be")
    return b"".join(parts)


def _make_basic_header(login: Login) -> str:
    return f"Basic {base64.b64encode(':'.join(login).encode()).decode()}"


def _split_address(address: str) -> SplitResult:
    """Split an address; raises ValueError for one with a login, or an invalid one."""
    parts = urlsplit(address)
    if parts.username is not None or parts.port == 0:
        raise ValueError("not a plain address")
    return parts


def parse_origin(address: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an address; raises ValueError for one with a login."""
    parts = _split_address(address)
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port or PORTS.get(parts.scheme)


def _is_own_realm(realm: SplitResult, *, host: str) -> bool:
    """Whether a token server is a registry's own: the same name, a subdomain, or a usual name in its domain."""
    own = _split_address(f"https://{host}")
    name, other = own.hostname or "", (realm.hostname or "").rstrip(".")
    if realm.port not in (None, 443, own.port) or not re.search(r"[a-z]", name) or LOOPBACK.fullmatch(name):
        return False
    domain = name.partition(".")[2]
    siblings = (domain, *(f"{word}.{domain}" for word in TOKEN_SERVERS)) if not SUFFIX.fullmatch(domain) else ()
    return other == name or other.endswith(f".{name}") or other in siblings


VARIABLE = "RECIPE_REGISTRY"  # the host of the login in the engines' variables
INDEX = "https://index.docker.io/v1/"  # what Docker's own registry is called in these files
HELPER = re.compile(r"[A-Za-z0-9._-]+")
LARGEST = 1024 * 1024  # bytes of a file with logins
KEYRING_SECONDS = 20.0  # a program may have to ask the user to open a keyring


def find_login(host: str, *, environment: Mapping[str, str], own: bool = True) -> Login | None:
    """Return the login for a registry, None without one; `own` is false for a host that a recipe names."""
    found = from_variables(host, environment=environment, own=own)
    for file in list_config_files(environment) if found is None else ():
        found = _from_file(file, host=host, environment=environment)
        if found is not None:
            break
    return found


def from_variables(host: str, *, environment: Mapping[str, str], own: bool) -> Login | None:
    """Return the login in the engines' variables, which name no host: it is for the site's or the user's own registry.

    A base image that a recipe names gets it only if RECIPE_REGISTRY has its host.
    """
    named = environment.get(VARIABLE, "")
    if (named and _parse_key(named) != _parse_key(host)) or not (named or own):
        return None
    for engine in ("APPTAINER", "SINGULARITY"):
        name, word = (environment.get(f"{engine}_DOCKER_{part}", "") for part in ("USERNAME", "PASSWORD"))
        if name and word:
            return name, word
    return None


def list_config_files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the existing files that may hold logins, those of the engines first."""
    home = Path(environment.get("HOME") or "/")
    places = [environment.get("REGISTRY_AUTH_FILE") or ""]
    for name, folder in (("APPTAINER_CONFIGDIR", ".apptainer"), ("SINGULARITY_CONFIGDIR", ".singularity")):
        places.append(str(Path(environment.get(name) or home / folder) / "docker-config.json"))
    places.append(str(Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"))
    for place in filter(None, places):
        if Path(place).is_file():
            yield Path(place)


def list_login_keys(host: str) -> tuple[str, ...]:
    """Return the names that a registry may have in such a file."""
    return (INDEX, *HUB_NAMES) if host in HUB_NAMES else (host, f"https://{host}")


def _parse_key(key: str) -> str:
    """Return the host of a key such as `https://HOST/v1/`; a key with another path is for a part of a registry."""
    found = re.fullmatch(r"(?:https?://)?([^/]+)(?:/v[12])?/?", key)
    name = found[1].lower() if found else ""
    return HUB if name in HUB_NAMES else name


def _from_file(file: Path, *, host: str, environment: Mapping[str, str]) -> Login | None:
    config = _to_table(_read_document(file))
    helpers = _to_table(config.get("credHelpers"))
    helper = next(
        (word for key, word in helpers.items() if _parse_key(key) == _parse_key(host)), config.get("credsStore")
    )
    if isinstance(helper, str) and HELPER.fullmatch(helper):
        found = _from_helper(helper, key=list_login_keys(host)[0], environment=environment)
        if found is not None:
            return found
    for key, entry in _to_table(config.get("auths")).items():
        if _parse_key(key) == _parse_key(host):
            return _from_entry(_to_table(entry))
    return None


def _read_document(file: Path) -> object:
    try:
        with file.open("rb") as opened:
            return json.loads(opened.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return None


def _from_entry(entry: Mapping[str, Any]) -> Login | None:
    token, auth = entry.get("identitytoken"), entry.get("auth")
    if isinstance(token, str) and token:
        return TOKEN, token
    try:
        name, colon, word = base64.b64decode(auth, validate=True).decode().partition(":") if auth else ("", "", "")
    except (ValueError, TypeError):
        return None
    return (name, word.rstrip("\0")) if colon and word else None


def _from_helper(helper: str, *, key: str, environment: Mapping[str, str]) -> Login | None:
    """Ask docker-credential-NAME; one that fails has no login for this registry."""
    program = find_system_program(f"docker-credential-{helper}", path=environment.get("PATH"))
    if program is None:
        return None
    try:
        code, out, _ = ask([program, "get"], env=environment, text=key, seconds=KEYRING_SECONDS)
        answer = _to_table(json.loads(out)) if code == 0 else {}
    except (LayeringError, ValueError, RecursionError):
        return None
    name, word = answer.get("Username"), answer.get("Secret")
    return (name, word) if isinstance(name, str) and isinstance(word, str) and word else None


def _to_table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
