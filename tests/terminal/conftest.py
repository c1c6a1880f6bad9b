"""The program as people have it: its wheel in an environment of its own, an ordinary user, an empty home, a terminal.

No engine, no batch system and no network: what needs one says so, with exit code 4, and never begins.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from screen import Shown, show
from second import LoadedProgram

ROOT = Path(__file__).parents[2]
# What the plans and we ourselves call, and no engine.
PROGRAMS = (
    "bash", "sh", "env", "cat", "cp", "mv", "rm", "mkdir", "ls", "tail", "head", "sed", "grep", "sha256sum", "df", "du",
    "stat", "uname", "hostname", "id", "sync", "mktemp", "dirname", "basename", "readlink", "date", "tr", "cut", "sort",
    "wc", "touch", "chmod", "ln", "tar",
)  # fmt: skip
NOWHERE = "http://127.0.0.1:9"  # refuses at once


@pytest.fixture(scope="session", autouse=True)
def ordinary_user() -> None:
    """Root may read and write everything, and would see other messages."""
    if os.geteuid() == 0:
        pytest.exit("tests/terminal are an ordinary user's: run tests/testbed/test.sh terminal", returncode=4)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs: `recipe` from the wheel of this checkout, made once for all workers."""
    own = tmp_path_factory.getbasetemp()
    place = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "installed"
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "done").exists():
            _install(place)
            (place / "done").touch()
    return place / "bin"


def _install(place: Path) -> None:
    """The machine's pip settings say where the dependencies come from."""
    venv = place / "venv"
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for words in (
        [sys.executable, "-m", "venv", "--without-pip", str(venv)],
        [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--quiet", str(ROOT)],
    ):
        done = subprocess.run(words, cwd=place, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    programs = place / "bin"
    programs.mkdir(exist_ok=True)
    for name in PROGRAMS:
        path = shutil.which(name)
        assert path, f"{name} is missing on this machine"
        (programs / name).symlink_to(path)
    for name in ("recipe", "uv", "python3"):
        (programs / name).symlink_to(venv / "bin" / name)


@dataclass(kw_only=True)
class Seat:
    """Where somebody sits who has just installed the program: an empty home, a folder to work in."""

    work: Path
    env: dict[str, str]
    loaded: LoadedProgram
    more: Mapping[str, str] = field(default_factory=dict)
    second: bool = False  # lines of `recipe` are forks of the loaded program

    @property
    def again(self) -> Seat:
        """The same place, where each line of `recipe` is a fork of the loaded program."""
        return replace(self, second=True)

    def type(self, line: str, *, columns: int | None = 80, color: bool = True) -> Shown:
        """Type a line, as in a shell without variables and redirections but NAME=VALUE before it."""
        words = shlex.split(line)
        env = {**self.env, **self.more}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            env[name] = value
        if self.second and words[0] == "recipe":
            return show(words, cwd=self.work, env=env, columns=columns, color=color, loaded=self.loaded)
        program = shutil.which(words[0], path=env["PATH"])
        assert program, f"there is no '{words[0]}'"
        return show([program, *words[1:]], cwd=self.work, env=env, columns=columns, color=color)

    def type_again(self, line: str, *, columns: int | None = 80, color: bool = True) -> Shown:
        """Type a line of `recipe` a second time, for another look of it: a fork of the loaded program shows it."""
        return self.again.type(line, columns=columns, color=color)

    def install(self, programs: Mapping[str, str]) -> None:
        """Put stand-ins for programs, scripts of /bin/sh, first on PATH."""
        folder = self.work.parent / "programs"
        folder.mkdir(exist_ok=True)
        for name, script in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        self.env["PATH"] = f"{folder}:{self.env['PATH'].removeprefix(f'{folder}:')}"

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Write files, folders where a name ends in a slash."""
        for name, text in files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                path.mkdir(exist_ok=True)
            else:
                path.write_bytes(text.encode() if isinstance(text, str) else text)


def environment_of(installed: Path, home: Path, temporary: Path) -> dict[str, str]:
    return {
        "HOME": str(home), "PATH": str(installed), "TERM": "xterm-256color", "LANG": "C.UTF-8", "USER": "alice",
        "TMPDIR": str(temporary), "UV_HTTP_RETRIES": "0",
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), NOWHERE),
    }  # fmt: skip


@pytest.fixture(scope="session")
def loaded(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedProgram]:
    """The program with its modules loaded, for second showings."""
    home = tmp_path_factory.mktemp("home")
    program = LoadedProgram(
        installed.parent / "venv" / "bin" / "python", environment=environment_of(installed, home, home), cwd=home
    )
    yield program
    program.close()


@pytest.fixture
def seat(installed: Path, loaded: LoadedProgram, tmp_path: Path) -> Iterator[Seat]:
    """A new one for each test; what was closed is opened again so that it can be removed."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    yield Seat(work=work, env=environment_of(installed, home, tmp_path), loaded=loaded)
    for path in work.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


@pytest.fixture
def typed(seat: Seat) -> Callable[..., Shown]:
    """Type a line at the seat."""
    return seat.type
