"""SIGTERM ends a command as an error does: no temporary folder stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND = """
import os, signal
from builder.cli import main
from builder.system.scratch import make_work_folder

def run(arguments):
    with make_work_folder("recipe-doctor-") as folder:
        print(folder.is_dir(), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

main.run = run
main.main([])
"""


def test_no_temporary_folder_stays(tmp_path: Path) -> None:
    words = [sys.executable, "-c", COMMAND]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "True\n", "")
    assert list(tmp_path.iterdir()) == []
