"""Stand-ins for registries that want more than they should get: small servers on the loopback addresses."""

from __future__ import annotations

import http.server
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

DIGEST = "sha256:" + "a" * 64
Reply = tuple[int, Mapping[str, str], bytes]


@dataclass
class StandIn:
    """A server that answers by `reply` and notes what it was shown: (method, path, Authorization)."""

    scheme: str
    host: str
    port: int = 0
    reply: Callable[[StandIn, str, str], Reply] = lambda _server, _path, _shown: (404, {}, b"")
    seen: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """HOST:PORT."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"{self.scheme}://{self.name}"

    @property
    def shown(self) -> list[str]:
        """Every Authorization that came."""
        return [authorization for _, _, authorization in self.seen if authorization]


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for the loopback addresses that signs itself, and its key."""
    cert, key = folder / "ca.pem", folder / "ca.key"
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    # uv takes no certificate of a server that may sign others.
    argv += ["-addext", "basicConstraints=critical,CA:FALSE"]
    argv += ["-subj", "/CN=loopback", "-addext", names, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(argv, check=True, capture_output=True)
    return cert, key


@contextmanager
def serving(host: str = "127.0.0.1", *, tls: tuple[Path, Path] | None = None) -> Iterator[StandIn]:
    """Run a stand-in until the end of the block."""
    stand_in = StandIn(scheme="https" if tls else "http", host=host)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown = self.headers.get("Authorization") or ""
            stand_in.seen.append((self.command, self.path, shown))
            status, headers, body = stand_in.reply(stand_in, self.path, shown)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer((host, 0), Handler)
    server.handle_error = lambda *_arguments: None  # type: ignore[method-assign]  # a client that speaks no TLS
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    stand_in.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()


def found(_server: StandIn, _path: str, _shown: str) -> Reply:
    """A public image."""
    return 200, {"Docker-Content-Digest": DIGEST}, b"{}"


def wants(
    challenge: str, *, then: Callable[[StandIn, str, str], Reply] = found
) -> Callable[[StandIn, str, str], Reply]:
    """A registry that wants a login."""

    def reply(server: StandIn, path: str, shown: str) -> Reply:
        return then(server, path, shown) if shown else (401, {"WWW-Authenticate": challenge}, b"")

    return reply


def leads_to(address: str) -> Callable[[StandIn, str, str], Reply]:
    """A registry that leads elsewhere."""
    return lambda _server, path, _shown: (307, {"Location": f"{address}{path}"}, b"")
