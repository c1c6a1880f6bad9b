"""What a job says is masked before it is in its log, and its command is read from a file of its user's alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

RECORD = Path(__file__).parents[2] / "builder" / "data" / "templates" / "record.sh"
JOB = """. ./record.sh
record_job "$(readlink -f "$0")" run '' x 120 '' "$@"
take_command "$@"
set -- "${words[@]}"
printf '<%s>' "$@"
echo
"""


def job(folder: Path, work: str, *words: str, **variables: str) -> tuple[int, str]:
    """Run a job script as Slurm does, both streams to one log; its exit code and the log."""
    (folder / "record.sh").write_text(RECORD.read_text())
    (folder / "job.sh").write_text(JOB + work)
    environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", **variables}
    with (folder / "log").open("w") as log:
        ended = subprocess.run(
            ["bash", "job.sh", *words], cwd=folder, env=environment, stdout=log, stderr=log, check=False, timeout=60
        )
    return ended.returncode, (folder / "log").read_text()


@pytest.mark.parametrize("secret", ["hunter22", "s3/cr.t*[x]$^&\\y", "a b  c", "-n e", "#;|{}()", "ümläut✓"])
def test_security_20_secrets_of_the_environment_are_not_in_the_log_of_a_job(tmp_path: Path, secret: str) -> None:
    work = 'printf "say %s.\\n" "$MY_TOKEN" && printf "err %s\\n" "$MY_TOKEN" >&2 && exit 3\n'
    code, log = job(tmp_path, work, MY_TOKEN=secret)
    assert (code, log) == (3, "<>\nsay ***.\nerr ***\n")
    assert json.loads((tmp_path / "jobs" / "7.json").read_text())["exit_code"] == 3


def test_security_20_passwords_in_addresses_are_not_in_the_log_of_a_job(tmp_path: Path) -> None:
    work = "echo get https://me:other1@h/x and p%40ssw0rd and p@ssw0rd and key.pem\n"
    _, log = job(tmp_path, work, PIP_INDEX_URL="https://me:p%40ssw0rd@h/simple", KEY_FILE="key.pem", API_KEY="abc")
    assert log == "<>\nget https://***@h/x and *** and *** and key.pem\n"


def test_security_20_what_outlives_a_job_does_not_keep_it(tmp_path: Path) -> None:
    code, log = job(tmp_path, "sleep 20 & echo done\n", MY_TOKEN="hunter22")
    assert (code, log) == (0, "<>\ndone\n")


def test_security_23_a_command_comes_from_its_file(tmp_path: Path) -> None:
    command = tmp_path / "command"
    command.write_bytes(b"python3\0--token\0two\nlines\0\0$(id)\0")
    assert job(tmp_path, "", RECIPE_COMMAND=str(command)) == (0, "<python3><--token><two\nlines><><$(id)>\n")
    assert job(tmp_path, "", "by", "hand") == (0, "<by><hand>\n")
    code, log = job(tmp_path, "", RECIPE_COMMAND=str(tmp_path / "gone"))
    assert code == 2
    assert "cannot be read" in log
