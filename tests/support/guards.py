"""Guards of tests without engines: the caller's settings do not reach them, and they reach no other machine."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from typing import NoReturn

import pytest

SETTINGS = (
    "NO_COLOR", "RECIPE_IMAGE", "RECIPE_MNIST", "RECIPE_SITES", "RECIPE_TMPDIR", "RECIPE_TORCH_INDEX", "SBATCH_ACCOUNT",
    "SOURCE_DATE_EPOCH",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def nothing_of_the_caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A user's own sites, accounts and indexes stay out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in SETTINGS:
            patch.delenv(name, raising=False)
        for name in ("XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"):
            patch.setenv(name, str(tmp_path_factory.getbasetemp() / "no-settings"))
        yield


@pytest.fixture(autouse=True, scope="module")
def no_other_machine() -> Iterator[None]:
    """A connection to anything but this machine is an error."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else ""
        if self.family != socket.AF_UNIX and host not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test without engines wants to reach {address}")
        connect(self, address)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture(autouse=True, scope="module")
def no_process() -> Iterator[None]:
    """A unit test starts no program: what does is a test of commands."""

    def refused(*words: object, **_: object) -> NoReturn:
        raise AssertionError(f"a unit test wants to start {words[:1]}: its place is tests/commands")

    with pytest.MonkeyPatch.context() as patch:
        for place, name in ((subprocess, "Popen"), (os, "fork"), (os, "posix_spawn"), (os, "system")):
            patch.setattr(place, name, refused)
        yield
