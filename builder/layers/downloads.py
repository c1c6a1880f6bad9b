"""How much the programs of a build download, reported while they work: uv, py-rattler and the container engine.

The kernel counts the bytes of every connection, and names its process; no program has to be asked. Where it does not
(another kernel, a program with more rights), nothing is reported. sock_diag(7), linux/inet_diag.h, linux/tcp.h.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from ..sif.errors import PAUSE, VARIABLE, Meter

Sizes = Mapping[str, int]  # of each file that is downloaded, in bytes; 0: unknown
INET_DIAG, BY_FAMILY, DUMP, DONE, ERROR, TCP_INFO = 4, 20, 0x301, 3, 2, 2
HEADER = struct.Struct("=IHHII")
INODE = 68  # where the inode is in inet_diag_msg, which has 72 bytes
RECEIVED = 128  # where tcpi_bytes_received is in tcp_info (Linux 4.1)
PACKAGE = re.compile(r'^name = "([^"]+)"\nversion = "([^"]+)"\n', re.MULTILINE)
WHEEL = re.compile(r'wheels = \[\s*\{[^}\n]*?url = "([^"]+)"(?:[^}\n]*?size = (\d+))?')
SECONDS = 10.0  # for the size of one file
REQUESTS = 8  # at the same time


class DownloadMeter:
    """One amount for all that this process's children download while a `with` block of `count` lasts."""

    def __init__(self, what: str) -> None:
        self._meter = Meter(what)
        self._sizes: dict[str, int] = {}
        self._received: dict[int, int] = {}  # inode of a connection -> bytes
        self._active, self._lock = 0, threading.Lock()
        self._wake = threading.Event()

    @contextmanager
    def count(self, find_sizes: Callable[[], Sizes]) -> Iterator[None]:
        """Count while the block lasts; the sizes are looked up in the background."""
        if VARIABLE not in os.environ:
            yield
            return
        with self._lock:
            self._active += 1
            if self._active == 1:
                self._wake = threading.Event()
                threading.Thread(target=self._watch, args=(self._wake,), daemon=True).start()
        threading.Thread(target=self._expect, args=(find_sizes,), daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                self._active -= 1
                if not self._active:
                    self._wake.set()
                    if self._meter.done:
                        self._meter.total = self._meter.done
                        self._meter.add(0)  # nothing more is shown of it

    def _expect(self, find_sizes: Callable[[], Sizes]) -> None:
        with suppress(Exception):  # without sizes the bytes alone are shown
            found = find_sizes()
            with self._lock:
                self._sizes.update(found)

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(PAUSE):
            with suppress(OSError, struct.error):
                self._received.update(read_received(list_children(os.getpid())))
            with self._lock:
                done = sum(self._received.values())
                total = sum(self._sizes.values()) if all(self._sizes.values()) else 0
                if over.is_set() or done == self._meter.done:
                    continue
                self._meter.total = total
                self._meter.set_done(min(done, total - 1) if total else done)  # with headers and indexes it is more


def list_children(pid: int) -> set[int]:
    """List the processes that a process has started, and theirs."""
    found: set[int] = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found |= {int(word) for word in file.read_text().split()}
    return found.union(*(list_children(child) for child in found))


def read_received(pids: set[int]) -> dict[int, int]:
    """Read how many bytes each TCP connection of these processes has received, by its inode; raises OSError."""
    own = set()
    for pid in pids:
        with suppress(OSError):
            for file in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    kind, _, inode = os.readlink(file.path).partition(":")
                    own |= {int(inode.strip("[]"))} if kind == "socket" else set()
    found = {}
    for family in (socket.AF_INET, socket.AF_INET6) if own else ():
        found.update(_read_connections(family))
    return {inode: size for inode, size in found.items() if inode in own}


def _read_connections(family: int) -> dict[int, int]:
    found: dict[int, int] = {}
    request = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << (TCP_INFO - 1), 0xFFF) + bytes(48)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, INET_DIAG) as link:
        link.settimeout(1.0)
        link.send(HEADER.pack(HEADER.size + len(request), BY_FAMILY, DUMP, 1, 0) + request)
        while data := link.recv(1 << 20):
            while data:
                size, kind, *_ = HEADER.unpack_from(data)
                if kind in (DONE, ERROR) or size < HEADER.size:
                    return found
                inode, received = _parse_connection(data[HEADER.size : size])
                found[inode] = received
                data = data[(size + 3) & ~3 :]
    return found


def _parse_connection(message: bytes) -> tuple[int, int]:
    (inode,) = struct.unpack_from("=I", message, INODE)
    rest = message[INODE + 4 :]
    while len(rest) >= 4:
        size, kind = struct.unpack_from("=HH", rest)
        if kind == TCP_INFO and size >= 4 + RECEIVED + 8:
            return inode, struct.unpack_from("=Q", rest, 4 + RECEIVED)[0]
        if size < 4:
            break
        rest = rest[(size + 3) & ~3 :]
    return inode, 0


def find_wheel_sizes(lock: str, *, cache: Path) -> dict[str, int]:
    """Find the size of each wheel in the text of a pylock.toml that uv's cache does not have."""
    addresses, sizes = {}, {}
    for block in lock.split("[[packages]]")[1:]:
        package, wheel = PACKAGE.search(block), WHEEL.search(block)
        if package is None or wheel is None or _is_cached(package[1], package[2], cache=cache):
            continue
        sizes[wheel[1]] = int(wheel[2] or 0)
        if not wheel[2]:
            addresses[wheel[1]] = wheel[1]
    if addresses:  # an index of plain HTML has no sizes
        with ThreadPoolExecutor(REQUESTS) as pool:
            sizes |= zip(addresses, pool.map(_ask_size, addresses), strict=True)
    return sizes


def _is_cached(name: str, version: str, *, cache: Path) -> bool:
    """Whether uv has a wheel (0.13: wheels-v8/pypi/NAME/VERSION-TAGS.http, or wheels-v8/index/DIGEST/NAME)."""
    return any(next(cache.glob(f"wheels-v*/{place}/{name}/{version}-*.http"), None) for place in ("pypi", "index/*"))


def _ask_size(address: str) -> int:
    """Return the size of a file that its server tells without a login, or 0."""
    import urllib.request  # a build without a network loads none of it

    from .certificates import find_certificates, make_tls_context
    from .registry import NoRedirect

    parts = urlsplit(address)
    if parts.scheme not in ("https", "http") or "@" in parts.netloc:
        return 0
    handler = urllib.request.HTTPSHandler(context=make_tls_context(find_certificates(os.environ)))
    opener = urllib.request.build_opener(handler, NoRedirect)
    with suppress(OSError, ValueError):
        request = urllib.request.Request(address, method="HEAD")
        with opener.open(request, timeout=SECONDS) as answer:
            return int(answer.headers.get("Content-Length") or 0)
    return 0
