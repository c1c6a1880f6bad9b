"""Real wheels of the default index, downloaded once for all runs of a user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# What is asked for -> tags beside those of manylinux; none is larger than 150 MB.
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014", "linux")


def folder() -> Path:
    """Where they are kept."""
    state = os.environ.get("RECIPE_DEV_HOME")
    place = Path(state) if state and os.access(state, os.W_OK) else Path(tempfile.gettempdir())
    return place / f"recipe-test-wheels-{os.getuid()}"


def real_wheel(name: str, version: str, *, arch: str = "x86_64") -> Path:
    """The wheel of a package for Python 3.12; AssertionError with pip's words where it cannot be had."""
    kept = folder()
    kept.mkdir(mode=0o700, exist_ok=True)
    pattern = f"{name.replace('-', '_')}-{version}-*{arch}.whl"
    if found := sorted(kept.glob(pattern)):
        return found[0]
    with tempfile.TemporaryDirectory(dir=kept) as new:
        argv = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
            new,
        ]
        argv += ["--python-version", "3.12", *(f"--platform={platform}_{arch}" for platform in PLATFORMS)]
        done = subprocess.run([*argv, f"{name}=={version}"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        (got,) = Path(new).iterdir()
        shutil.move(got, kept / got.name)
    return kept / got.name
