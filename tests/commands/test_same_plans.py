"""What is around the compiler changes nothing of a plan: another process, folder, environment and hash seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.matrix import ROOT, everything


def test_folder_environment_and_hash_seed_change_nothing(tmp_path: Path) -> None:
    program = "import sys; sys.path[:0] = sys.argv[1:]; from support import matrix; print(matrix.everything())"
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT), str(ROOT / "tests")],
        cwd=tmp_path,
        env={
            "PYTHONHASHSEED": "12345", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nowhere", "USER": "x",
            "TZ": "Asia/Tokyo", "SBATCH_ACCOUNT": "a", "PIP_INDEX_URL": "https://pip.example.org",
            "TMPDIR": str(tmp_path), "LANG": "tr_TR",
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == everything()
