"""Guards of the unit tests: the caller's settings do not reach them, and they reach no other machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

SETTINGS = (
    "NO_COLOR", "RECIPE_IMAGE", "RECIPE_MNIST", "RECIPE_SITES", "RECIPE_TMPDIR", "RECIPE_TORCH_INDEX", "SBATCH_ACCOUNT",
    "SOURCE_DATE_EPOCH",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_of_the_caller(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A user's own sites, accounts and indexes stay out of the tests."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "no-settings"))


@pytest.fixture(autouse=True)
def no_other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to anything but this machine is an error."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else ""
        if self.family != socket.AF_UNIX and host not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a unit test wants to reach {address}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def recipes() -> Path:
    """The example recipes that ship with us."""
    return Path(__file__).parents[2] / "builder" / "data" / "recipes"
