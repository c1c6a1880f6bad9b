"""How a program that is missing is brought to this machine: by its module, or by the package manager it really has."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from builder.execute.machine import has_modules

# By the ID or ID_LIKE of os-release(5).
MANAGERS = {
    "debian": "apt", "ubuntu": "apt", "fedora": "dnf", "rhel": "dnf", "centos": "dnf", "suse": "zypper",
    "opensuse": "zypper", "sles": "zypper", "alpine": "apk", "arch": "pacman",
}  # fmt: skip
COMMANDS = {
    "apt": "apt install", "dnf": "dnf install", "zypper": "zypper install", "apk": "apk add", "pacman": "pacman -S",
}  # fmt: skip
# The packages, where the repositories of a system have them (2026-11); OTHERS and UNKNOWN are for the rest.
PACKAGES = {
    "apptainer": dict.fromkeys(("dnf", "zypper", "apk", "pacman"), "apptainer"),
    "squashfs-tools": {**dict.fromkeys(COMMANDS, "squashfs-tools"), "zypper": "squashfs"},
    "docker": {"apt": "docker.io", "dnf": "moby-engine", "zypper": "docker", "apk": "docker", "pacman": "docker"},
}
UNKNOWN = {
    "apptainer": "install Apptainer (apptainer.org/docs/admin)",
    "squashfs-tools": "install the package squashfs-tools (`squashfs` on openSUSE)",
    "docker": "install the Docker engine (docs.docker.com/engine/install), or build on a workstation that has it",
}
# https://apptainer.org/docs/admin/main/installation.html, and https://docs.docker.com/engine/install/
OTHERS = {
    ("apptainer", "ubuntu"): "`{sudo}add-apt-repository -y ppa:apptainer/ppa && {sudo}apt install apptainer`",
    ("apptainer", "debian"): "`{sudo}apt install ./apptainer_*.deb` with the file of "
    "github.com/apptainer/apptainer/releases",
    ("apptainer", "rhel"): "`{sudo}dnf install apptainer` with the repository EPEL (docs.fedoraproject.org/en-US/epel)",
    ("docker", "rhel"): UNKNOWN["docker"],
}
WITHOUT_ROOT = {"squashfs-tools": "`conda install -c conda-forge squashfs-tools`"}
BROUGHT_BY = {
    "apptainer": "apptainer", "singularity": "apptainer", "mksquashfs": "squashfs-tools",
    "unsquashfs": "squashfs-tools", "docker": "docker",
}  # fmt: skip
TYKKY = "load the module of Tykky (LUMI: lumi-container-wrapper)"
BY_HAND = {
    "cotainr": "load its module (LUMI: `module load CrayEnv cotainr`), or `pip install cotainr`",
    "conda-containerize": TYKKY,
    "pip-containerize": TYKKY,
    "wrap-container": TYKKY,
    "sbatch": "run this on a login node of the site",
    "srun": "run this on a login node of the site",
}


def find_installation(name: str, *, environment: Mapping[str, str], root: Path = Path("/")) -> str:
    """Return what brings a program to this machine, "" for one that is not known; `root` has the system's files."""
    product = BROUGHT_BY.get(name)
    if product is None:
        return BY_HAND.get(name, "")
    others = f", without root {WITHOUT_ROOT[product]}" if product in WITHOUT_ROOT else ""
    module = f"`module load {product}` if `module avail {product}` lists it; else "
    own = product != "docker" and has_modules(environment, root=root)  # a cluster has no Docker
    return f"{module if own else ''}{_find_command(product, root=root)}{others}"


def _find_command(product: str, *, root: Path) -> str:
    """Return the command of this system's package manager, or what helps where it has no such package."""
    names = _read_names(root)
    manager = next((MANAGERS[name] for name in names if name in MANAGERS), "")
    sudo = "" if os.geteuid() == 0 else "sudo "
    special = next((OTHERS[product, name] for name in names if (product, name) in OTHERS), "")
    package = PACKAGES[product].get(manager)
    if special or not package:
        return special.format(sudo=sudo) or UNKNOWN[product]
    return f"`{sudo}{COMMANDS[manager]} {package}`"


def _read_names(root: Path) -> tuple[str, ...]:
    """Return the ID of this system and those that it is like, the nearest first."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        try:
            text = (root / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        try:
            words = shlex.split(f"{found.get('ID', '')} {found.get('ID_LIKE', '')}")
        except ValueError:
            return ()
        return tuple(part.split("-")[0] for word in words for part in word.split())
    return ()
