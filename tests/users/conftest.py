"""Tests that take root: it acts as two ordinary users who share a folder, or mounts what we have written.

Only root may act as others: `make test` runs them where it is root, an ordinary user sees them skipped with a reason.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from user import MINE, THEIRS, User

REASON = "only root can act as two users and mount images: run them as root with `make users`"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without root nothing here can run."""
    here = Path(__file__).parent
    if os.geteuid() != 0:
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=REASON))


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /scratch: everybody may write there, and remove only what is their own."""
    folder = Path(tempfile.mkdtemp(prefix="recipe-users-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def _user(uid: int, shared: Path) -> User:
    home = shared / f"home-{uid}"
    home.mkdir(mode=0o700)
    os.chown(home, uid, uid)
    return User(uid=uid, home=home)


@pytest.fixture
def me(shared: Path) -> User:
    """The user who is to be kept from harm."""
    return _user(MINE, shared)


@pytest.fixture
def other(shared: Path) -> User:
    """The user whose files lie there."""
    return _user(THEIRS, shared)
