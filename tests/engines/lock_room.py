"""A folder in which `recipe lock` is run, and loopback servers for it: channels and indexes behind a password."""

from __future__ import annotations

import base64
import http.server
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from recipe_program import Done, Room

from builder.model.lock import Lock
from builder.parse.lock_files import read_lock
from builder.parse.recipe import name_index

USER, PASSWORD = "reader", "s3cret-of-the-channel"
# What would bring this machine's indexes, wheels and accounts into a test.
OUTSIDE = ("PIP_", "UV_", "CONDA_", "NETRC", "RATTLER_", "RECIPE_TORCH_INDEX")


class LockRoom(Room):
    """A room with caches, a home and settings of its own."""

    def environment(self, **more: str) -> dict[str, str]:
        """Nothing of this machine's package settings; `default` torch index unless the test names one."""
        own = {name: value for name, value in super().environment().items() if not name.startswith(OUTSIDE)}
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        own |= {"HOME": str(home), "RECIPE_CACHE_DIR": str(self.folder / "cache"), "UV_NO_CONFIG": "1"}
        return own | {"UV_CACHE_DIR": str(self.folder / "uv"), "RECIPE_TORCH_INDEX": "default"} | more

    def locked(self, *sites: str, env: Path, **environment: str) -> Done:
        """Run `recipe lock` for some sites."""
        return self.recipe("lock", *sites, env, **environment)

    def read(self, site: str, *, env: Path) -> Lock:
        """The lock of a site."""
        lock = read_lock(name_index(env), site)
        assert lock is not None
        return lock

    def written(self, env: Path) -> Mapping[str, bytes]:
        """Every file of a lock."""
        index = name_index(env)
        files = [index, *index.with_suffix("").rglob("*")]
        return {str(path.relative_to(env.parent)): path.read_bytes() for path in files if path.is_file()}


class _Files(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, to those who know the password where there is one."""

    password = ""
    gate: threading.Event | None = None

    def do_GET(self) -> None:
        """Answer with a file, or ask for the password; nobody gets an answer while the gate is closed."""
        if self.gate:
            self.gate.wait()
        wanted = "Basic " + base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        if self.password and self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="test"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super().do_GET()

    def do_HEAD(self) -> None:
        """As GET: a HEAD is asked for the password too."""
        self.do_GET()

    def end_headers(self) -> None:
        """Where there is a gate, what was told is to be asked again."""
        if self.gate:
            self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path, *, password: str = "", gate: threading.Event | None = None) -> Iterator[str]:
    """Serve a folder on the loopback address."""
    handler = type("Files", (_Files,), {"password": password, "gate": gate})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
