"""run/settings.sh by bash: the user's variables, run/site.env as data, the names that no file may set."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support import hostile, names
from support.matrix import bare_target
from support.rows import rows

from builder.compile.launch.container_scripts import make_job_environment
from builder.compile.launch.settings import OWN, make_settings_script
from builder.compile.render import read_template
from builder.model import variables

BASE = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "USER": "somebody"}


def bash(folder: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "run").mkdir(exist_ok=True)
    (folder / "run" / "settings.sh").write_text(make_settings_script())
    (folder / "engine.sh").write_text(read_template("engine.sh"))
    return subprocess.run(
        ["bash", "-euc", f". ./engine.sh; . run/settings.sh\n{script}"],
        cwd=folder, env=BASE | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_security_09_the_names_refused_are_those_of_a_site_file(tmp_path: Path) -> None:
    groups = (variables.SHELL, variables.LOADER, variables.HOST, variables.PROGRAM_SETTINGS, variables.JOB)
    known = {name for group in groups for name in (*group.names, *group.allowed)}
    known |= {f"{prefix}X" for group in groups for prefix in group.prefixes} | {*names.REFUSED, *names.ALLOWED, *OWN}
    known |= {f"{prefix}{name}" for prefix in variables.RUNTIME_PREFIXES for name in ("BASH_ENV", "IFS", "LD_PRELOAD")}
    ordered = sorted(known)
    script = 'for name; do find_reserved "$name"; printf "%s\\n" "$reserved"; done'
    done = bash(tmp_path, f"set -- {' '.join(ordered)}\n{script}")
    assert done.returncode == 0, done.stderr
    found = dict(zip(ordered, done.stdout.splitlines(), strict=True))
    for name, why in found.items():
        owner = variables.find_reserved_on_host(name)
        own = variables.JOB.contains(name) and not name.startswith(variables.RUNTIME_PREFIXES)
        assert bool(why) == (name not in OWN and (owner is not None or own)), (name, why)


def test_security_09_lines_of_site_env_are_data(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    values = {f"V{number}": value for number, value in enumerate(hostile.values().values()) if value.isprintable()}
    text = "".join(f"{name}={value}\n" for name, value in values.items())
    (tmp_path / "run" / "site.env").write_text(
        f"# of the project\n\nLINES=a=b\r\n{text}https_proxy=http://p:1/\nLAST=1"
    )
    done = bash(tmp_path, "read_settings run/site.env; env -0", LAST="of the user")
    assert done.returncode == 0, done.stderr
    found = dict(item.split("=", 1) for item in done.stdout.split("\0")[:-1])
    assert {name: found[name] for name in values} == values
    assert (found["LINES"], found["https_proxy"], found["LAST"]) == ("a=b", "http://p:1/", "of the user")
    assert hostile.canaries(tmp_path) == []


@rows(
    ("text", "message"),
    [
        ("A=1\nLD_PRELOAD=/x.so\n", "line 2: LD_PRELOAD cannot be set there: the C library obeys it"),
        ("PATH=/evil\n", "line 1: PATH cannot be set there"),
        ("LD_LIBRARY_PATH=/evil\n", "line 1: LD_LIBRARY_PATH cannot be set there"),
        ("BASH_ENV=x\n", "line 1: BASH_ENV cannot be set there"),
        ("SINGULARITYENV_BASH_ENV=x\n", "line 1: SINGULARITYENV_BASH_ENV cannot be set there"),
        ("RECIPE_STOP=x\n", "line 1: RECIPE_STOP cannot be set there"),
        ("MASTER_ADDR=x\n", "line 1: MASTER_ADDR cannot be set there: the scripts of a plan set it"),
        ("image=x\n", "line 1 is not NAME=VALUE"),
        ("export A=1\n", "line 1 is not NAME=VALUE"),
        ("A[$(touch CANARY)]=1\n", "line 1 is not NAME=VALUE"),
        ("A=a\tb\n", "line 1: the value of A has a control character"),
        ("A=" + "x" * 9000, "line 1 is too much"),
    ],
)
def test_security_09_a_faulty_line_ends_the_job(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "run" / "site.env").write_text(text)
    done = bash(tmp_path, "read_settings run/site.env; echo went on")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"recipe: error: run/site.env: {message}" in done.stderr
    assert hostile.canaries(tmp_path) == []


def test_security_09_site_env_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "site.env").symlink_to("/etc/hostname")
    done = bash(tmp_path, "read_settings run/site.env")
    assert (done.returncode, done.stderr) == (
        1, "recipe: error: run/site.env is not a file: write the lines NAME=VALUE into one\n",
    )  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The folder of Dawn's job.sh, with stand-ins for Slurm's scontrol and the module command."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "job.sh").write_text(make_job_environment(bare_target("dawn")))
    (tmp_path / "programs").mkdir()
    program = tmp_path / "programs" / "scontrol"
    program.write_text("#!/bin/sh\necho n1\necho n2\n")
    program.chmod(0o755)
    return tmp_path


def settings_of(folder: Path, script: str = ". run/job.sh", **environment: str) -> dict[str, str]:
    module = '() {  if [ "$1" = load ]; then export FI_PROVIDER=of-the-module; fi\n}'  # a stand-in
    given = {"PATH": f"{folder}/programs:/usr/bin:/bin", "BASH_FUNC_module%%": module, "SLURM_JOB_NODELIST": "n[1-2]"}
    done = bash(folder, f"{script}\nenv -0", **given, SLURM_JOB_NUM_NODES="2", **environment)
    assert done.returncode == 0, done.stderr
    return dict(item.split("=", 1) for item in done.stdout.split("\0")[:-1])


def test_exported_variables_win_over_modules_and_the_site(job: Path) -> None:
    plain = settings_of(job)
    assert (plain["FI_PROVIDER"], plain["CCL_MNIC"], plain["PYTHONUNBUFFERED"]) == ("tcp", "global", "1")
    own = settings_of(job, FI_PROVIDER="psm3", PYTHONUNBUFFERED="", SLURM_EXPORT_ENV="NONE")
    assert (own["FI_PROVIDER"], own["CCL_MNIC"], own["PYTHONUNBUFFERED"]) == ("psm3", "global", "")
    assert own["SLURM_EXPORT_ENV"] == "ALL"  # sbatch sets it, not the user
    (job / "run" / "site.env").write_text("FI_PROVIDER=verbs\nCCL_MNIC=local\n")
    assert settings_of(job)["FI_PROVIDER"] == "verbs"
    both = settings_of(job, FI_PROVIDER="psm3")
    assert (both["FI_PROVIDER"], both["CCL_MNIC"]) == ("psm3", "local")


def test_a_job_submitted_by_a_job_has_its_own_site_variables(job: Path) -> None:
    first = settings_of(job)
    (job / "run" / "job.sh").write_text(
        (job / "run" / "job.sh")
        .read_text()
        .replace('site_variable FI_PROVIDER "tcp"', 'site_variable FI_PROVIDER "shm"')
    )
    assert (
        settings_of(job, RECIPE_SITE_VARIABLES=first["RECIPE_SITE_VARIABLES"], FI_PROVIDER="tcp")["FI_PROVIDER"]
        == "shm"
    )
    # What the first job's program has changed is the user's.
    changed = settings_of(job, RECIPE_SITE_VARIABLES=first["RECIPE_SITE_VARIABLES"], FI_PROVIDER="psm3")
    assert changed["FI_PROVIDER"] == "psm3"


def test_visibility_is_one_of_two_words(job: Path) -> None:
    assert settings_of(job)["RECIPE_GPU_VISIBILITY"] == "node"
    assert settings_of(job, RECIPE_GPU_VISIBILITY="rank")["RECIPE_GPU_VISIBILITY"] == "rank"
    given = {"PATH": f"{job}/programs:{os.defpath}", "BASH_FUNC_module%%": "() {  :\n}", "SLURM_JOB_NODELIST": "n1"}
    done = bash(job, ". run/job.sh", **given, RECIPE_GPU_VISIBILITY="all")
    assert done.returncode == 1
    assert 'RECIPE_GPU_VISIBILITY is "all": write node or rank' in done.stderr


@rows(
    ("listed", "local", "found"),
    [
        ("", "3", "3"),
        ("0,1", "0", "0"),
        ("0,1", "1", "1"),
        ("4,5,2,3", "2", "2"),
        ("GPU-aa,GPU-bb", "1", "GPU-bb"),
        (
            "0,1",
            "2",
            "recipe: error: rank 5 is number 2 on its node, and NAME lists the devices 0,1: none is left",
        ),
    ],
)
def test_a_rank_gets_the_device_of_its_number(tmp_path: Path, listed: str, local: str, found: str) -> None:
    (tmp_path / "device.sh").write_text(read_template("device.sh"))
    script = '. ./device.sh && one_device NAME "$NAME" && echo "$NAME $LOCAL_RANK $RECIPE_LOCAL_RANK"'
    for shell in ("sh", "bash"):
        done = subprocess.run(
            [shell, "-euc", script], cwd=tmp_path, env={**BASE, "NAME": listed, "LOCAL_RANK": local, "RANK": "5"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        expected = f"{found}\n" if " " in found else f"{found} 0 {local}\n"
        assert (done.stdout or done.stderr) == expected


def test_a_job_leaves_no_engines_cache_on_its_node(tmp_path: Path) -> None:
    """Outside of a job the next build uses it; a folder that several machines see is of use to other jobs."""
    script = f'temporary_folder {tmp_path}/tmp {tmp_path}/cache; echo "$work" "$APPTAINER_CACHEDIR"'
    for environment, stays in (({}, True), ({"ENVIRONMENT": "BATCH"}, False)):
        work, cache = bash(tmp_path, script, **environment).stdout.split()
        assert (cache == f"{tmp_path}/cache", cache.startswith(work)) == (stays, not stays)
        assert not Path(work).exists()
    shared = f'stat() {{ if [ "$1" = -f ]; then echo lustre; else command stat "$@"; fi; }}; {script}'  # a stand-in
    assert bash(tmp_path, shared, ENVIRONMENT="BATCH").stdout.split()[1] == f"{tmp_path}/cache"
    own = bash(tmp_path, script, ENVIRONMENT="BATCH", APPTAINER_CACHEDIR="/own", SINGULARITY_CACHEDIR="/own")
    assert own.stdout.split()[1] == "/own"


def test_the_network_plugin_is_the_users_or_that_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "librccl-net.so.0").touch()
    link = tmp_path / "elsewhere" / "librccl-net.so"
    link.parent.mkdir()
    link.symlink_to("../librccl-net.so.0")
    script = 'keep_own NCCL_NET_PLUGIN; {module} find_plugin; echo "<$NCCL_NET_PLUGIN>"'

    def find(module: str = "", **environment: str) -> tuple[str, bool]:
        done = bash(tmp_path, script.replace("{module}", module and f"NCCL_NET_PLUGIN={module};"), **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), "no module has set NCCL_NET_PLUGIN" in done.stderr

    assert find(str(link)) == (f"<{tmp_path / 'librccl-net.so.0'}>", False)
    assert find(str(link), NCCL_NET_PLUGIN="/mine.so") == ("</mine.so>", False)
    assert find(str(link), NCCL_NET_PLUGIN="") == ("<>", False)
    assert find() == ("<>", True)
    assert find("/none.so") == ("</none.so>", True)
