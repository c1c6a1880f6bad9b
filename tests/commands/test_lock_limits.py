"""A lock that this machine stops says what stopped it, and not that the packages cannot be installed together."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.registry_stand_ins import StandIn, serving

from builder.lock.session import locate_errors, make_resolver_error
from builder.model.finding import Finding, Location, StepError, UnsupportedError
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve
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


BUILD = """error: Failed to build `old==2.12.0`
  cause: Call to `setuptools.build_meta:__legacy__.get_requires_for_build_wheel` failed (exit status: 1)
         [stderr]
         Traceback (most recent call last):
           File "requirements.py", line 84, in __init__
             raise ParserSyntaxError(
         packaging.requirements.InvalidRequirement: Expected semicolon
             python_version>"3.7"
                           ^

hint: Build failures usually indicate a problem with the package or the build environment"""

NOT_FOUND = "error: No solution found when resolving dependencies: Because nix was not found in the package registry"


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
        (1, NOT_FOUND, UnsupportedError, "there is no Python package 'nix' on the indexes that were asked"),
        (1, f"{NOT_FOUND}, hint: An index URL (http://127.0.0.1:9/simple/) could not be queried due to a lack of valid "
            "authentication credentials (401 Unauthorized)", StepError,
         "the index 'http://127.0.0.1:9/simple/' refused access (401 Unauthorized), and no other index has 'nix'"),
        (1, f"{NOT_FOUND}, hint: An index (http://127.0.0.1:9/) returned a 403 Forbidden error. Check that the index "
            "URL is correct and the credentials are valid.", StepError,
         "the index 'http://127.0.0.1:9/' refused access (403 Forbidden), and no other index has 'nix'"),
        (1, "error: No solution found when resolving dependencies: Because old==1.0 has no wheels with a matching "
            "Python ABI tag (e.g., `cp312`), hint: You require CPython 3.12 (`cp312`), but we only found wheels for "
            "`old` (v1.0) with the following Python ABI tags: `cp37m`, `cp38`, `cp310`", UnsupportedError,
         "'old==1.0' has no wheel for Python 3.12"),
        (1, BUILD, UnsupportedError, "'old==2.12.0' has no wheel that fits, and its source package cannot be built: "
                                     "InvalidRequirement: Expected semicolon"),
        (2, "error: Couldn't parse requirement", UnsupportedError, "the Python packages cannot be resolved: error: C"),
    ],
)  # fmt: skip
def test_the_end_of_uv_decides(code: int, text: str, kind: type[Exception], said: str) -> None:
    finished = ProcessResult(exit_code=code, seconds=1.0, tail=tuple(text.splitlines()))
    error = make_resolver_error(finished, at=Location(file="x.yml"))
    assert type(error) is kind
    assert str(error).startswith(said) or said in str(error)


def test_without_servers_nothing_says_that_a_version_is_missing() -> None:
    """The cache may lack it: no version has to be loosened. A conflict of what the cache has stays one."""
    lacks = "error: No solution found when resolving dependencies: Because there is no version of torch==2.8.0+cpu and"
    clash = (
        "error: No solution found when resolving dependencies: Because a==1 depends on b<2 and recipe depends on b==2"
    )
    for text, offline, kind, fix in (
        (lacks, True, StepError, "lock once without --offline"),
        (lacks, False, UnsupportedError, "choose another version"),
        (clash, True, UnsupportedError, "loosen a version"),
    ):
        finished = ProcessResult(exit_code=1, seconds=1.0, tail=(text,))
        error = make_resolver_error(finished, at=Location(file="x.yml"), offline=offline)
        assert type(error) is kind, text
        assert error.findings[0].fix.startswith(fix)


def test_an_error_of_a_lock_names_the_line_of_the_package(tmp_path: Path) -> None:
    """Of two packages that exclude each other the first that the message names; Python is the last choice."""
    lines = "- python=3.12\n- pip:\n  - numpy==2.1.0\n  - Scipy==1.9.0\n"
    (tmp_path / "x.yml").write_text(f"channels: [conda-forge]\ndependencies:\n{lines}")
    recipe = load_recipe(tmp_path / "x.yml")

    @locate_errors
    def lock(target: Target) -> None:
        recipe = target.recipe
        message = "the Python packages: Because scipy==1.9.0 depends on numpy<1.25.0 and recipe depends on numpy==2.1.0"
        raise UnsupportedError(Finding(code="lock-pip", message=message, at=Location(file=recipe.file), fix="x"))

    with pytest.raises(UnsupportedError) as caught:
        lock(resolve(recipe, load_site("local"), context=Context(tool="test")))
    assert caught.value.findings[0].at == Location(file=recipe.file, line=6)
