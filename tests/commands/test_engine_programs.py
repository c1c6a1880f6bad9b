"""How many programs the scripts start before a build begins: each is a millisecond or more of every build."""

from __future__ import annotations

import subprocess
from itertools import zip_longest
from pathlib import Path

import pytest

from builder.compile.render import read_template
from builder.layers.certificates import NAMES
from builder.layers.uv import SETTINGS, make_uv_settings

CALL = "set -eu; . ./engine.sh; temporary_folder; inside_build; cat $inputs/settings"
TLS = "SSL_CERT_FILE"
COUNTED = ("sed", "stat", "readlink", "mkdir")


def started(folder: Path, **variables: str) -> tuple[list[str], str]:
    """Prepare a build as a step does; the programs that were started, and what the build sees of the settings."""
    programs = folder / "bin"
    programs.mkdir()
    for name in COUNTED:
        (programs / name).write_text(f'#!/bin/sh\necho {name} >>"{folder}/started"\nexec /usr/bin/{name} "$@"\n')
        (programs / name).chmod(0o755)
    (folder / "engine.sh").write_text(read_template("engine.sh"))
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "RECIPE_CACHE_DIR": str(folder / "cache"), **variables}
    (folder / "tmp").mkdir()
    environment["TMPDIR"] = str(folder / "tmp")
    call = ["bash", "-c", f"flavour=APPTAINER; {CALL}"]
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return (folder / "started").read_text().split(), done.stdout


@pytest.mark.parametrize("again", [False, True])
def test_a_build_without_logins_starts_few_programs(tmp_path: Path, again: bool) -> None:
    if again:
        for name in ("cache", "cache/uv"):
            (tmp_path / name).mkdir(mode=0o700)
    found, settings = started(tmp_path, PIP_INDEX_URL="https://host/simple", https_proxy="http://proxy:80")
    assert {name: found.count(name) for name in COUNTED} == {
        "sed": 0, "stat": 3, "readlink": 0, "mkdir": 3 if again else 5,
    }  # fmt: skip
    assert "UV_DEFAULT_INDEX=https://host/simple\n" in settings


def test_a_login_is_still_taken_out_of_what_the_build_sees(tmp_path: Path) -> None:
    found, settings = started(tmp_path, PIP_INDEX_URL="https://me:pass@host/simple https://a:b@c/d")
    assert found.count("sed") == 2
    assert "pass" not in settings
    assert "a:b" not in settings
    assert r"PIP_INDEX_URL=https://host/simple\ https://c/d" in settings


def test_a_container_gets_the_settings_of_uv_here(tmp_path: Path) -> None:
    """engine.sh and uv.py read the same variables, whichever of their names is set."""
    rows = {**SETTINGS, TLS: NAMES[1:]}
    for number, names in enumerate(zip_longest(*([name, *others] for name, others in rows.items()))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "ca.pem").write_text("certificates\n")
        given = {name: f"https://{name.lower()}" for name in names if name}
        given |= {name: str(folder / "ca.pem") for name in names if name in NAMES}
        _, text = started(folder, **given)
        inside = dict(line.removeprefix("export ").split("=", 1) for line in text.splitlines())
        here = make_uv_settings(given, cache=folder)
        inside = {name: value for name, value in inside.items() if name in rows}
        assert inside.pop(TLS, "") == ("/mnt/ca.pem" if TLS in here else "")
        assert inside == {name: value for name, value in here.items() if name in SETTINGS}
        assert inside.keys() == {row for row, others in SETTINGS.items() if number < len(others) + 1}


def test_a_link_on_the_way_is_followed_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    found, _ = started(tmp_path, RECIPE_CACHE_DIR=str(tmp_path / "link" / "cache"))
    assert found.count("readlink") == 2
    assert (tmp_path / "real" / "cache" / "uv").is_dir()
