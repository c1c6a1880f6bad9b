"""run/local.sh and record.sh by bash: what a job removes from its nodes, and what it leaves alone."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.matrix import bare_target

from builder.compile.launch.settings import make_folders_script
from builder.compile.render import read_template

BASE = {"PATH": "/usr/bin:/bin", "USER": "somebody", "SLURM_JOB_ID": "17", "ENVIRONMENT": "BATCH"}
JOB = """
. ./record.sh
record_job "$0" run node run/node.sbatch 120 ranks "$@"
mkdir -m 700 "{folder}" && touch "{folder}/cache" && echo made
sleep "$1" # what SIGTERM ends
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan folder whose node-local folder is below it."""
    (tmp_path / "run").mkdir()
    text = make_folders_script(bare_target("lumi-g")).replace("/tmp/", f"{tmp_path}/")
    (tmp_path / "run" / "local.sh").write_text(text)
    for name in ("engine.sh", "record.sh"):
        (tmp_path / name).write_text(read_template(name))
    (tmp_path / "job").write_text(JOB.format(folder=tmp_path / "somebody-miopen-cache-17"))
    return tmp_path


@pytest.mark.parametrize("how", ["input", "signal"])
def test_a_task_on_a_node_removes_them_at_the_end(plan: Path, how: str) -> None:
    folder = plan / "somebody-miopen-cache-17"
    (folder / "deep").mkdir(parents=True)
    folder.chmod(0o700)
    words = ["bash", "run/local.sh", "hold", str(folder)]
    with subprocess.Popen(words, cwd=plan, env=BASE, stdin=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        if how == "signal":
            caught = Path(f"/proc/{holder.pid}/status")
            end = time.monotonic() + 60
            while not int(caught.read_text().partition("SigCgt:\t")[2].split()[0], 16) >> 14 & 1:  # the trap is set
                assert time.monotonic() < end
            holder.send_signal(signal.SIGTERM)
            while folder.exists():
                assert time.monotonic() < end
                time.sleep(0.05)
            folder.mkdir(mode=0o700)  # by a program that still saves
        assert folder.exists()
        holder.stdin.close()
        assert holder.wait(60) == 0
    assert not folder.exists()


def test_what_is_not_the_jobs_own_stays(plan: Path) -> None:
    precious = plan / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (plan / "link").symlink_to(precious)
    (plan / "open").mkdir()
    (plan / "open").chmod(0o777)
    (plan / "open" / "17").mkdir()
    named = [plan / "link", plan / "open" / "17", plan / "none"]
    script = '. run/local.sh; remove_local_folders "$@"'
    subprocess.run(["bash", "-euc", script, "bash", *map(str, named)], cwd=plan, env=BASE, check=True)
    assert (precious / "file").exists()
    assert (plan / "link").is_symlink()
    assert (plan / "open" / "17").exists()  # others can put something else in its place
    text = make_folders_script(bare_target("lumi-g"))
    assert 'removed_folders=("/tmp/${USER}-miopen-cache-${SLURM_JOB_ID}")' in text


@pytest.mark.parametrize(("seconds", "kept"), [("0", False), ("600", False), ("0", True)])
def test_the_job_script_removes_them_on_its_node(plan: Path, seconds: str, kept: bool) -> None:
    """However the job ends; in an allocation another script may still use them."""
    folder = plan / "somebody-miopen-cache-17"
    environment = BASE | ({"ENVIRONMENT": ""} if kept else {})
    with subprocess.Popen(
        ["bash", "job", seconds], cwd=plan, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        start_new_session=True,
    ) as job:  # fmt: skip
        assert job.stdout is not None
        assert job.stdout.readline() == b"made\n"
        if seconds != "0":
            job.send_signal(signal.SIGTERM)
        assert job.wait(60) == (143 if seconds != "0" else 0)
    assert folder.exists() == kept
    assert (plan / "jobs" / "17.json").exists()
    assert [path.name for path in (plan / "jobs").iterdir()] == ["17.json"]
