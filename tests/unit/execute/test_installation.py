"""The command that brings a missing program is that of this system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.rows import rows

from builder.execute.machine import find_installation

SYSTEMS = [
    ("ID=ubuntu\nID_LIKE=debian\n", "mksquashfs", "`sudo apt install squashfs-tools`"),
    ("ID=ubuntu\nID_LIKE=debian\n", "apptainer", "`sudo add-apt-repository -y ppa:apptainer/ppa && sudo "),
    ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "singularity", "`sudo add-apt-repository -y ppa:apptainer/ppa"),
    ("ID=debian\n", "apptainer", "`sudo apt install ./apptainer_*.deb` with the file of github.com/apptainer"),
    ("ID=debian\n", "docker", "`sudo apt install docker.io`"),
    ("ID=fedora\n", "apptainer", "`sudo dnf install apptainer`"),
    ("ID=fedora\n", "docker", "`sudo dnf install moby-engine`"),
    ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "apptainer", "`sudo dnf install apptainer` with the repository"),
    ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "docker", "install the Docker engine"),
    ("ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n", "unsquashfs", "`sudo zypper install squashfs`"),
    ("ID=alpine\n", "mksquashfs", "`sudo apk add squashfs-tools`"),
    ("ID=arch\n", "apptainer", "`sudo pacman -S apptainer`"),
    ("ID=plan9\n", "mksquashfs", "install the package squashfs-tools"),
    ("ID='\n", "apptainer", "install Apptainer (apptainer.org/docs/admin)"),
    ("", "apptainer", "install Apptainer (apptainer.org/docs/admin)"),
]  # fmt: skip


@rows(("release", "name", "begins"), SYSTEMS)
def test_a_system_gets_its_own_command(
    release: str, name: str, begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "usr/lib").mkdir(parents=True)
    if release:
        (tmp_path / "usr/lib/os-release").write_text(release)  # /etc/os-release is a link to it, or missing
    found = find_installation(name, environment={"PATH": ""}, root=tmp_path)
    assert found.startswith(begins), found
    named = {word for word in found.replace("`", " ").split() if word in ("apt", "dnf", "zypper", "apk", "pacman")}
    assert len(named) <= 1
    assert ("conda install" in found) is ("squash" in name)


def test_root_needs_no_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("ID=debian\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find_installation("mksquashfs", environment={}, root=tmp_path).startswith("`apt install squashfs-tools`")


def test_a_cluster_with_modules_has_one(tmp_path: Path) -> None:
    (tmp_path / "etc/profile.d").mkdir(parents=True)
    (tmp_path / "etc/profile.d/lmod.sh").touch()
    (tmp_path / "etc/os-release").write_text("ID=rocky\nID_LIKE=rhel\n")
    found = find_installation("apptainer", environment={}, root=tmp_path)
    assert found.startswith("`module load apptainer` if `module avail apptainer` lists it; else `")
    assert "dnf install apptainer" in found
    assert "module" not in find_installation("docker", environment={}, root=tmp_path)


def test_what_no_package_brings_has_a_fix_too() -> None:
    for name in ("cotainr", "conda-containerize", "sbatch"):
        assert find_installation(name, environment={})
    assert find_installation("unheard-of", environment={}) == ""
