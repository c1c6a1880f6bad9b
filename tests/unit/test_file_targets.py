"""`container.files`: which sources can be copied, and which places of an image they may take."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from support.rows import rows

from builder.model.finding import ConfigError, Finding
from builder.parse.recipe import load_recipe

Load = Callable[[str, str], None]
OVER_A_FOLDER = (
    "file.txt: /bin|file.txt: /usr/lib|file.txt: /usr/lib/|file.txt: /etc|file.txt: /usr//./bin/.|file.txt: /opt"
)
OVER_A_LINK = (
    "folder: /bin|folder: /lib64|folder: /usr/sbin|folder: /.singularity.d|file.txt: /var/lib|file.txt: /opt/env"
)
OVER_A_FILE = (
    "folder: /etc/passwd|file.txt: /etc/passwd|file.txt: /etc/passwd/x|file.txt: /bin/sh|folder: /etc/localtime"
)
ALLOWED = (
    "file.txt: /opt/x|folder: /opt|folder: /usr/local|folder: /lib/demo|file.txt: /usr/local/sbin/chown|folder: /home"
    "|file.txt: /etc/localtime|file.txt: /etc/ssl/certs/own.pem|folder: /etc/demo|file.txt: /usr/lib/x|file.txt: /srv/x"
)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def call(source: str, target: str) -> None:
        path = tmp_path / "x.yml"
        path.write_text(f"dependencies: []\ncontainer: {{files: {{{source}: {target}}}}}\n")
        load_recipe(path)

    (tmp_path / "file.txt").touch()
    (tmp_path / "folder").mkdir()
    return call


def fault(load: Load, source: str, target: str) -> Finding:
    with pytest.raises(ConfigError) as caught:
        load(source, target)
    (finding,) = caught.value.findings
    assert finding.fix
    return finding


@rows("line", [*OVER_A_FOLDER.split("|"), *OVER_A_LINK.split("|"), *OVER_A_FILE.split("|")])
def test_what_the_base_image_needs_is_not_replaced(load: Load, line: str) -> None:
    source, target = line.split(": ")
    finding = fault(load, source, target)
    assert finding.code == "file-target"
    assert "of the base image" in finding.message


@rows("line", ALLOWED.split("|"))
def test_other_places_are_free(load: Load, line: str) -> None:
    source, target = line.split(": ")
    load(source, target)


def test_a_source_is_a_file_or_a_folder(load: Load, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    for name in ("pipe", "socket"):
        finding = fault(load, name, "/opt/x")
        assert (finding.code, finding.message) == ("file-source", f"'{name}' is neither a file nor a folder")
