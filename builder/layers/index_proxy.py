"""A proxy to indexes with a login: foreign code asks this machine on its loopback address, which adds the login.

A login is a user before the host, or a token in the path (/t/TOKEN/). A request has to be below an index of the user's,
or for a file that a page of one names; only this build knows the secret in the proxy's address. Index pages:
https://packaging.python.org/en/latest/specifications/simple-repository-api/
"""

from __future__ import annotations

import base64
import hmac
import http.client
import json
import re
import secrets
import shlex
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape, unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from .certificates import find_certificates, make_tls_context
from .registry import NoRedirect

ADDRESS = re.compile(r"(https?)://(?:([^/\s,]*)@)?([^/@\s,?#]+)([^\s,]*)")
TOKEN = re.compile(r"/(t/[^/?#\s]+)")  # model/secrets.py has the same
EXPORT = "export "
BASE = re.compile(r"<base\s[^>]*?href\s*=\s*[\"']?([^\"'\s>]+)[^>]*>", re.IGNORECASE)
HREF = re.compile(r"(\shref\s*=\s*)(\"[^\"]*\"|'[^']*'|[^\s\"'>]+)", re.IGNORECASE)
REQUEST_HEADERS = ("Accept", "Range", "If-Range", "If-None-Match", "If-Modified-Since", "User-Agent")
RESPONSE_HEADERS = (
    "Content-Type",
    "Content-Length",
    "Content-Range",
    "Accept-Ranges",
    "Cache-Control",
    "ETag",
    "Last-Modified",
)
SHORTEST = 8  # characters: a token is replaced everywhere; a shorter one only after its t/
PAGE = 64 << 20  # bytes: that of the largest project of the public index is below 5 MB
SECONDS = 60.0
OWN = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Index:
    """An index: its server, its path, and the login as a header, "" if it has none."""

    server: str
    path: str
    login: str
    opener: urllib.request.OpenerDirector


class IndexProxy:
    """A server on the loopback address until `close`; `text` is the settings with its own addresses."""

    def __init__(self, settings: str, *, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.indexes: list[Index] = []
        self.named = set[str]()  # addresses that a page of an index names
        self.tokens: dict[str, str] = {}  # t/TOKEN of a path, and its replacement in the build
        self.word = secrets.token_urlsafe(24)
        handler = type("Handler", (_Handler,), {"proxy": self})
        self.server = _Server((OWN, 0), handler)
        self.text = "".join(f"{self._rewrite_line(line)}\n" for line in settings.splitlines())
        for name in ("no_proxy", "NO_PROXY"):
            self.text += f'export {name}="${{{name}:+${name},}}{OWN}"\n'
        Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Stop the server."""
        self.server.shutdown()
        self.server.server_close()

    def _rewrite_line(self, line: str) -> str:
        name, _, value = line.removeprefix(EXPORT).partition("=")
        if not line.startswith(EXPORT) or name.lower().endswith("_proxy"):
            return line
        return f"{EXPORT}{name}={shlex.quote(ADDRESS.sub(self._replace_address, ' '.join(shlex.split(value))))}"

    def _replace_address(self, found: re.Match[str]) -> str:
        """Return the proxy's address for that of an index with a login."""
        scheme, login, host, path = found.groups()
        tokens = TOKEN.findall(path)
        if login is None and not tokens:
            return found[0]
        for token in tokens:
            self.tokens.setdefault(token, f"t/token-{len(self.tokens)}")
        path = self._replace_tokens(path)
        user, _, password = (login or "").partition(":")
        word = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        server = _find_server(f"{scheme}://{host}")
        index = Index(
            server=server,
            path=urlsplit(path).path.rstrip("/"),
            login=f"Basic {word}" if login else "",
            opener=self._make_opener(host.partition(":")[0]),
        )
        self.indexes.append(index)
        return f"{self._make_address(len(self.indexes) - 1)}{path}"

    def _replace_tokens(self, text: str) -> str:
        """Replace each token in a text for the build, whichever of its characters are quoted."""
        for token, word in self.tokens.items():
            text = re.sub(rf"(?<![\w.~-]){_make_quoted_pattern(unquote(token))}(?![\w.~%-])", word, text)
            secret = unquote(token).removeprefix("t/")
            if len(secret) >= SHORTEST:
                text = re.sub(_make_quoted_pattern(secret), word.removeprefix("t/"), text)
        return text

    def _restore_tokens(self, address: str) -> str:
        words = {word: token for token, word in self.tokens.items()}
        return re.sub(r"(?<=/)t/token-\d+(?=[/?#]|$)", lambda found: words.get(found[0], found[0]), address)

    def _make_opener(self, host: str) -> urllib.request.OpenerDirector:
        insecure = f"{self.environment.get('UV_INSECURE_HOST', '')} {self.environment.get('PIP_TRUSTED_HOST', '')}"
        trusted = host in (name.partition(":")[0] for name in insecure.replace(",", " ").split())
        tls = make_tls_context(find_certificates(self.environment), verify=not trusted)
        return urllib.request.build_opener(urllib.request.HTTPSHandler(context=tls), NoRedirect)

    def _make_address(self, number: int) -> str:
        return f"http://{OWN}:{self.server.server_port}/{self.word}/{number}"

    def open(
        self, path: str, *, method: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, str] | None:
        """Return the response of an index and its address; None for an address of none. Raises OSError."""
        word, number, rest = (*path.lstrip("/").split("/", 2), "", "")[:3]
        if not hmac.compare_digest(word.encode(), self.word.encode()) or number not in map(
            str, range(len(self.indexes))
        ):
            return None
        index = self.indexes[int(number)]
        address = f"{index.server}/{rest}"
        if not self._is_allowed(index, address):
            return None
        login = {"Authorization": index.login} if index.login else {}
        request = urllib.request.Request(self._restore_tokens(address), headers={**headers, **login}, method=method)
        try:
            return index.opener.open(request, timeout=SECONDS), address
        except urllib.error.HTTPError as error:
            return error, address  # type: ignore[return-value]  # it is a response too

    def _is_allowed(self, index: Index, address: str) -> bool:
        if address in self.named or address.removesuffix(".metadata") in self.named:
            return True
        path = urlsplit(address).path
        plain = not {".", ".."} & set(unquote(path).replace("\\", "/").split("/"))
        return plain and (path == index.path or path.startswith(f"{index.path}/"))

    def rewrite_address(self, address: str) -> str:
        """Return an address for code in the build: the proxy's, if it is on the server of an index."""
        bare = self._replace_tokens(re.sub(r"//[^/@]*@", "//", address, count=1))
        for number, index in enumerate(self.indexes):
            if _find_server(bare) == index.server:
                self.named.add(urldefrag(bare).url)
                parts = urlsplit(bare)
                return self._make_address(number) + parts._replace(scheme="", netloc="").geturl()
        return self._replace_tokens(address)

    def rewrite_page(self, body: bytes, *, kind: str, address: str) -> bytes:
        """Return a page of an index with links to the proxy."""
        text = self._replace_tokens(body.decode(errors="replace"))
        if "json" in kind:
            found = json.loads(text)
            for file in found.get("files", ()):
                file["url"] = self.rewrite_address(urljoin(address, file["url"]))
            return json.dumps(found).encode()
        base = BASE.search(text)
        if base:
            address, text = urljoin(address, unescape(base[1])), text.replace(base[0], "")

        def link(match: re.Match[str]) -> str:
            target = urljoin(address, unescape(match[2].strip("\"'")))
            return f'{match[1]}"{escape(self.rewrite_address(target))}"'

        return HREF.sub(link, text).encode()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_arguments: object) -> None:
        """Print nothing: the client reports a broken connection."""


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    proxy: IndexProxy
    timeout = SECONDS

    def do_GET(self) -> None:
        """Pass on the response of an index."""
        headers = {name: self.headers[name] for name in REQUEST_HEADERS if name in self.headers}
        try:
            found = self.proxy.open(self.path, method=self.command, headers=headers)
        except (OSError, http.client.HTTPException, ValueError):
            self.send_error(502)
            return
        if found is None:
            self.send_error(404)
            return
        with found[0] as answer:
            self._pass_on(answer, found[1])

    do_HEAD = do_GET  # noqa: N815

    def _pass_on(self, answer: http.client.HTTPResponse, address: str) -> None:
        kind, body = answer.headers.get("Content-Type", ""), None
        if self.command == "GET" and answer.status == 200 and re.match(r"text/html|application/(\S*\+)?json", kind):
            try:
                body = answer.read(PAGE + 1)
                if len(body) > PAGE:
                    raise ValueError("the page is too large")
                body = self.proxy.rewrite_page(body, kind=kind, address=address)
            except (
                OSError,
                http.client.HTTPException,
                ValueError,
                KeyError,
                TypeError,
                AttributeError,
                RecursionError,
            ):
                self.send_error(502)
                return
        self.send_response(answer.status)
        for name in RESPONSE_HEADERS:
            if name in answer.headers and (body is None or name != "Content-Length"):
                self.send_header(name, answer.headers[name])
        if "Location" in answer.headers:
            self.send_header("Location", self.proxy.rewrite_address(urljoin(address, answer.headers["Location"])))
        if body is not None:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body is not None:
            self.wfile.write(body)
        elif self.command == "GET":
            shutil.copyfileobj(answer, self.wfile)

    def log_message(self, *_arguments: object) -> None:
        """Print nothing: an address holds the secret."""


def _make_quoted_pattern(text: str) -> str:
    """Return a pattern for a text in an address, where any character may be quoted."""
    quoted = ((char, "".join(f"%{byte:02x}" for byte in char.encode())) for char in text)
    return "".join(f"(?:{re.escape(char)}|(?i:{code}))" for char, code in quoted)


def _find_server(address: str) -> str:
    """Return scheme, host and port of an address, without the default port."""
    parts = urlsplit(address)
    usual = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
    return f"{parts.scheme}://{parts.netloc.lower().removesuffix(usual)}"
