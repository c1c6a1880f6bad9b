"""Wheels for an installation inside a container: this machine downloads them, the container only reads them.

The container sends a request through a pipe once it has its Python; the request is data, checked against patterns. uv
then resolves and downloads on this machine, with the user's settings, into a cache that is read-only in the container.
If all packages are wheels, the container asks no index. If one has to be built, foreign code runs next to uv: for that
part alone the container reaches indexes with a login through a proxy (index_proxy.py), and sees no login.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from ..sif.errors import LayeringError, log_line
from ..sif.programs import ask
from .private_folders import UV
from .uv import find_uv, make_uv_settings
from .wheels import Group, NeedsSourcesError, Resolver, is_distribution, name_platform, normalize_name, resolve

if TYPE_CHECKING:
    from .index_proxy import IndexProxy

MOST = 1 << 20  # bytes of a request: an image with 20,000 distributions is below it
MINOR = re.compile(r"3\.\d{1,2}")
GLIBC = re.compile(r"2\.\d{1,2}")
ASKING = {"torch", "packages", "own"}  # parts of install.sh
SHOWN = "settings"  # what the container sees while a package is built: indexes by the proxy's addresses


class WheelServer:
    """Answers the requests of one container; `given` is a folder that it can read and not write.

    After `over` nothing is shown any more: the recipe's own commands could ask too.
    """

    def __init__(
        self, folder: Path, *, given: Path, cache: Path, environment: Mapping[str, str], closed: bool = False
    ) -> None:
        self.closed = closed
        self.folder, self.given, self.cache, self.environment = folder, given, cache, environment
        self.private = given.with_name(f"{given.name}.private") / SHOWN
        self.proxy: IndexProxy | None = None
        uv = find_uv()
        if uv is not None and not (given / "uv").exists():
            shutil.copy(uv, given / "uv")
        # Both ends: neither waits for the other to be opened, and the names are not used again.
        # A container that reads no answer blocks nothing.
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
        self.questions, self.answers = (os.open(given / name, flags) for name in ("ask", "answer"))

    def serve(self, alive: int) -> None:
        """Answer until `alive` ends: `whole` if uv needs no index, `ask` if it does, `over` at the end."""
        line = b""
        while self.questions in select.select([self.questions, alive], [], [])[0]:
            line += os.read(self.questions, 65536)
            if len(line) > MOST:
                line = b""
            elif line.endswith(b"\n"):
                answer = self.answer(line.decode(errors="replace"))
                with suppress(BlockingIOError):
                    os.write(self.answers, f"{answer}\n".encode())
                line = b""

    def close(self) -> None:
        """Hide the settings and close the pipes."""
        self._close_proxy()
        for number in (self.questions, self.answers):
            os.close(number)

    def answer(self, line: str) -> str:
        if self.closed or line == "over\n":
            self.closed = True
            self._close_proxy()
            return "over"
        try:
            if line != "show\n" and self._download_all(line):
                return "whole"
        except (LayeringError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log_line(f"wheels were not downloaded before: {error}"[:300])
        self._open_proxy()
        return "ask"

    def _download_all(self, line: str) -> bool:
        asked = json.loads(line)
        minor, machine, glibc = (str(asked[name]) for name in ("minor", "machine", "glibc"))
        if not MINOR.fullmatch(minor) or not GLIBC.fullmatch(glibc):
            return False
        provided = {
            normalize_name(str(name)): str(version)
            for name, version in asked["provided"].items()
            if is_distribution(str(name), str(version))
        }
        uv = find_uv()
        if uv is None:
            return False
        with tempfile.TemporaryDirectory(dir=self.given.parent) as folder:
            resolver = Resolver(
                uv=uv,
                minor=minor,
                platform=name_platform(machine, glibc),
                work=Path(folder),
                environment=make_uv_settings(self.environment, cache=self.cache)
                | {"UV_CACHE_DIR": str(self.cache / UV)},
                provided=provided,
            )
            try:
                groups, sources = resolve(self.folder, resolver)
            except NeedsSourcesError:
                return False
            for number, group in enumerate(groups):
                _download(group, Path(folder, str(number)), resolver)
        return not sources

    def _open_proxy(self) -> None:
        """Start a proxy if an index has a login."""
        if self.proxy is not None or not self.private.is_file():
            return
        from .index_proxy import IndexProxy  # few builds need one

        log_line("note: a package is built inside the image: it can read the indexes, and sees no login")
        self.proxy = IndexProxy(self.private.read_text(encoding="utf-8"), environment=self.environment)
        (self.given / SHOWN).write_text(self.proxy.text, encoding="utf-8")

    def _close_proxy(self) -> None:
        (self.given / SHOWN).unlink(missing_ok=True)
        if self.proxy is not None:
            self.proxy.close()
            self.proxy = None


def _download(group: Group, tree: Path, resolver: Resolver) -> None:
    """Download the wheels of a group into uv's cache: they are linked into a temporary folder."""
    file = tree.with_suffix(".txt")
    file.write_text("".join(f"{pin.text}\n" for pin in group.pins), encoding="utf-8")
    hashes = ["--require-hashes"] if all(pin.hashes for pin in group.pins) else []
    argv = [resolver.uv, "pip", "install", "--quiet", "--no-deps", *hashes, "--target", str(tree), "--link-mode"]
    argv += ["symlink", *resolver.target, *group.options, "-r", str(file)]
    with resolver.count_download(group, file):
        code, _, err = ask(argv, env=resolver.make_environment(own_index=group.own_index))
    if code:
        raise LayeringError(f"uv could not download '{group.title}': {err.strip()[-200:]}")


def serve_wheels(folder: Path, *, given: Path, cache: Path, environment: Mapping[str, str]) -> None:
    """Answer one build until standard input ends; print a line when requests may come."""
    own = WheelServer(folder, given=given, cache=cache, environment=environment)
    print("ready", flush=True)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    own.serve(sys.stdin.fileno())
    own.close()


@contextmanager
def start_wheel_server(
    folder: Path, *, given: Path | None, cache: Path, environment: Mapping[str, str], parts: Sequence[str]
) -> Iterator[None]:
    """Answer a container step of this program; only the parts that install packages send requests."""
    if given is None:
        yield
        return
    closed = not ASKING.intersection(parts)
    own = WheelServer(folder, given=given, cache=cache, environment=environment, closed=closed)
    end, alive = os.pipe()
    thread = Thread(target=own.serve, args=(end,))
    thread.start()
    try:
        yield
    finally:
        os.close(alive)
        thread.join()
        own.close()
        os.close(end)
