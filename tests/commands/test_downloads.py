"""How much programs download, counted by the kernel: a real child reads from a real server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from builder.layers.downloads import PAUSE, DownloadMeter, find_wheel_sizes
from builder.sif.errors import VARIABLE
from builder.system.step_output import make_events_file, open_events

SIZE = 3_000_000
READ = "import sys, urllib.request; print(len(urllib.request.urlopen(sys.argv[1]).read()))"
LOCK = """lock-version = "1.0"
created-by = "uv"

[[packages]]
name = "numpy"
version = "2.2.1"
wheels = [{ url = "https://files.example.org/numpy-2.2.1-cp311.whl", upload-time = 2026-01-01T00:00:00Z, size = 300 }]

[[packages]]
name = "six"
version = "1.16.0"
wheels = [{ url = "https://files.example.org/six-1.16.0-py3.whl", size = 20, hashes = { sha256 = "aa" } }]

[[packages]]
name = "torch"
version = "2.6.0"
wheels = [
    { url = "%s/torch.whl", hashes = { sha256 = "bb" } },
]
"""


@contextmanager
def server(go_on: Event) -> Iterator[str]:
    """A server that sends half of a file, and the rest when it may."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(SIZE))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(bytes(SIZE // 2))
            go_on.wait(120)
            self.wfile.write(bytes(SIZE - SIZE // 2))

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as own:
        Thread(target=own.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{own.server_port}"
        own.shutdown()


def test_what_a_child_downloads_is_reported_with_its_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events"
    make_events_file(path)
    monkeypatch.setenv(VARIABLE, str(path))
    go_on, events, seen, half = Event(), open_events(path), list[tuple[int, int]](), SIZE // 2
    with server(go_on) as address, DownloadMeter("downloading").count(lambda: {address: SIZE}):
        child = subprocess.Popen([sys.executable, "-c", READ, address], stdout=subprocess.PIPE)
        until = time.monotonic() + 120
        while not any(done >= half for done, _ in seen) and time.monotonic() < until:
            seen += [(event.count("done"), event.count("total")) for event in events.read()]
            Event().wait(PAUSE / 5)
        go_on.set()
        assert child.communicate()[0].strip() == str(SIZE).encode()
    assert any(half <= done < half + 10_000 and total == SIZE for done, total in seen)
    last = events.read()[-1]
    assert last.get_text("what") == "downloading"
    assert last.count("done") == last.count("total")


def test_without_a_file_for_events_nothing_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    asked: list[str] = []
    with DownloadMeter("downloading").count(lambda: {"x": len(asked.append("x") or "")}):
        assert not asked


def test_sizes_are_those_of_wheels_that_uv_does_not_have(tmp_path: Path) -> None:
    known = tmp_path / "wheels-v8" / "index" / "0123" / "six"
    known.mkdir(parents=True)
    (known / "1.16.0-py3-none-any.http").touch()
    with server(Event()) as address:  # the index does not say how large torch is
        found = find_wheel_sizes(LOCK % address, cache=tmp_path)
        assert found == {"https://files.example.org/numpy-2.2.1-cp311.whl": 300, f"{address}/torch.whl": SIZE}
    assert find_wheel_sizes(LOCK % "ftp://x.example.org", cache=tmp_path)["ftp://x.example.org/torch.whl"] == 0
