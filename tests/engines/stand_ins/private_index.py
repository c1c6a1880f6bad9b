"""A package index that wants a login, on the loopback address, in place of a company's own."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def private_index(wheel: Path, *, user: str, password: str) -> Iterator[str]:
    """Serve one wheel to who gives the user and the password; gives HOST:PORT."""
    expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    project = wheel.name.partition("-")[0].replace("_", "-")
    pages = {
        f"/simple/{project}/": ("text/html", f'<a href="/{wheel.name}">{wheel.name}</a>'.encode()),
        f"/{wheel.name}": ("application/octet-stream", wheel.read_bytes()),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = pages.get(self.path, ("text/html", b""))
            known = self.headers.get("Authorization") == expected
            self.send_response((200 if body else 404) if known else 401)
            if not known:
                self.send_header("WWW-Authenticate", 'Basic realm="private"')
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body) if known else 0))
            self.end_headers()
            if known:
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
