"""An ordinary user of this machine, as whom root runs programs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MINE, THEIRS, SHARED_GROUP = 23456, 12345, 34567  # numbers without names, as users of another machine have
PROGRAM = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class User:
    """An ordinary user with a home of its own; a group of a project may be joined to it."""

    uid: int
    home: Path

    def run(
        self, *argv: str | Path, group: int | None = None, umask: int = 0o022, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this user, with nothing of the caller's environment but what is named."""
        groups = ["--groups", str(group)] if group is not None else ["--clear-groups"]
        drop = ["setpriv", "--reuid", str(self.uid), "--regid", str(self.uid), *groups, "--no-new-privs"]
        environment = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin", "/usr/sbin", "/sbin"]),
            "HOME": str(self.home),
            "USER": f"user{self.uid}",
            "PYTHONPATH": str(PROGRAM),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_COLOR": "1",
            "LC_ALL": "C.UTF-8",
            **variables,
        }
        command = [*drop, *map(str, argv)]
        return subprocess.run(
            command,
            check=False,
            env=environment,
            cwd=cwd or self.home,
            umask=umask,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def recipe(
        self,
        *words: str | Path,
        group: int | None = None,
        umask: int = 0o022,
        cwd: Path | None = None,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run `recipe` as this user."""
        return self.run(
            sys.executable, "-m", "builder.cli.main", *words, group=group, umask=umask, cwd=cwd, **variables
        )

    def python(
        self, code: str, *words: str | Path, group: int | None = None, umask: int = 0o022, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Python code with `builder` importable as this user."""
        return self.run(sys.executable, "-c", code, *words, group=group, umask=umask, **variables)
