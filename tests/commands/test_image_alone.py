"""A test judges the image alone: what bash leaves of the variables of this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.rows import rows

from builder.compile.render import read_template

KEPT = {
    "PYTHONNOUSERSITE": "1",
    "PYTHONUNBUFFERED": "1",
    "APPTAINERENV_LD_LIBRARY_PATH": "/usr/lib64/libibverbs",
    "SINGULARITYENV_NCCL_DEBUG": "INFO",
    "SINGULARITY_BIND": "/opt/cray,/usr/lib64/libcxi.so.1",
    "RECIPE_BINDS": "/usr/local/site/mpi,/data:/mnt/data:ro",
}
DROPPED = (
    "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONOPTIMIZE", "PYTHONPYCACHEPREFIX",
    "APPTAINERENV_PYTHONPATH", "SINGULARITYENV_PYTHONHOME", "APPTAINERENV_PATH", "APPTAINERENV_PREPEND_PATH",
    "SINGULARITYENV_APPEND_PATH", "APPTAINER_ENV", "APPTAINER_ENV_FILE", "SINGULARITY_OVERLAY",
)  # fmt: skip


def bash(folder: Path, environment: dict[str, str], function: str = "image_alone") -> subprocess.CompletedProcess[str]:
    (folder / "engine.sh").write_text(read_template("engine.sh"))
    argv = ["bash", "-euc", f". ./engine.sh; {function}; env"]
    own = {"PATH": "/usr/bin:/bin"} | environment
    return subprocess.run(argv, cwd=folder, env=own, capture_output=True, text=True, check=False, timeout=60)


def test_variables_that_change_the_python_are_dropped(tmp_path: Path) -> None:
    done = bash(tmp_path, KEPT | dict.fromkeys(DROPPED, "/x"))
    assert done.returncode == 0, done.stderr
    found = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert not set(DROPPED) & set(found)
    assert {name: found.get(name) for name in KEPT} == KEPT


def test_a_build_sees_no_variable_of_another_python(tmp_path: Path) -> None:
    kept = KEPT | {"PYTHONUSERBASE": "/home/me/python", "PATH": "/usr/bin:/bin"}
    done = bash(tmp_path, kept | dict.fromkeys(DROPPED, "/x"), "plain_python")
    assert done.returncode == 0, done.stderr
    found = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert not [name for name in DROPPED if "PYTHON" in name and name in found]
    assert {name: found.get(name) for name in kept} == kept
    for function in ("inside_build", "one_time"):
        body = read_template("engine.sh").partition(f"\n{function}() {{\n")[2].partition("\n}\n")[0]
        assert "    plain_python\n" in body


@rows(
    ("name", "value", "place"),
    [
        ("RECIPE_BINDS", "/d:/opt/env/lib/python3.11/site-packages", "/opt/env/lib/python3.11/site-packages"),
        ("RECIPE_BINDS", "/data,/d:/opt/env:ro", "/opt/env"),
        ("APPTAINER_BIND", "/opt", "/opt"),
        ("SINGULARITY_BINDPATH", "/usr/lib/python3.11", "/usr/lib/python3.11"),
        (
            "APPTAINER_BINDPATH",
            "/d:/usr/local/lib/python3.12/dist-packages/six.py",
            "/usr/local/lib/python3.12/dist-packages/six.py",
        ),
    ],
)
def test_binds_in_the_place_of_packages_are_refused(tmp_path: Path, name: str, value: str, place: str) -> None:
    done = bash(tmp_path, {name: value})
    assert done.returncode == 1
    assert f"{name} puts '{place}' of this machine in the place of the image's" in done.stderr
