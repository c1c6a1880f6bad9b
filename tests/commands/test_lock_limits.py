"""A lock that this machine stops says what stopped it, and not that the packages cannot be installed together."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.registry_stand_ins import StandIn, serving

from builder.lock.pip import _make_error
from builder.model.finding import Location, StepError, UnsupportedError
from builder.system.process import ProcessResult

ROOT = Path(__file__).parents[2]
SMALL = "mkdir -m 700 cache && mount -t tmpfs -o size=200k,mode=700 none cache"


@pytest.fixture(scope="module")
def index() -> Iterator[StandIn]:
    """An index whose pages take 2 MB in uv's cache."""
    rows = "".join(f'<a href="large-0.{number}.tar.gz#sha256={number:064x}">x</a>\n' for number in range(15000))
    with serving() as server:
        server.reply = lambda *_: (200, {"Content-Type": "text/html"}, rows.encode())
        yield server


@pytest.mark.parametrize(
    ("before", "said", "fix"),
    [
        ("ulimit -f 100", "largest size|limit of a file's size", "ulimit -f unlimited"),
        ("ulimit -v 300000", "memory was used up", "ulimit -v"),
        (SMALL, "no space was left on the disk", "recipe cache prune"),
    ],
)
def test_what_stops_uv_is_named(before: str, said: str, fix: str, index: StandIn, tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text("name: x\ndependencies:\n  - pip:\n    - large==2.0\n")
    env = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    env |= {"RECIPE_CACHE_DIR": str(tmp_path / "cache"), "UV_DEFAULT_INDEX": f"{index.url}/simple", "UV_NO_CACHE": ""}
    env |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-euc", f'{before}; exec "$@"', "bash"]
    argv += [sys.executable, "-m", "builder.cli.main", "lock", "local", "x.yml"]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    message, _, rest = done.stderr.partition("fix:")
    assert done.returncode == 5, done.stderr
    assert "error[lock-stopped]: uv" in message
    assert any(words in message for words in said.split("|")), message
    assert fix in rest
    assert "installed together" not in done.stderr


@pytest.mark.parametrize(
    ("code", "text", "kind", "said"),
    [
        (153, "", StepError, "uv was killed by signal 25: the limit of a file's size was reached (ulimit -f)"),
        (137, "", StepError, "uv was killed by signal 9: the memory may have been used up"),
        (139, "a line", StepError, "uv was killed by signal 11: a line"),
        (2, "error: Disk quota exceeded (os error 122)", StepError, "uv could not do its work: your quota there"),
        (2, "error: File too large (os error 27)", StepError, "uv could not do its work: a file reached the largest"),
        (1, "error: No solution found when resolving dependencies: Because a and b conflict", UnsupportedError,
         "the Python packages cannot be installed together: Because a and b conflict"),
        (2, "error: Couldn't parse requirement", UnsupportedError, "the Python packages cannot be resolved: error: C"),
    ],
)  # fmt: skip
def test_the_end_of_uv_decides(code: int, text: str, kind: type[Exception], said: str) -> None:
    error = _make_error(ProcessResult(exit_code=code, seconds=1.0, tail=(text,)), at=Location(file="x.yml"))
    assert type(error) is kind
    assert str(error).startswith(said) or said in str(error)
