"""Relative paths in variables are those of the folder in which the program is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cli.path_variables import make_paths_absolute


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wheels").mkdir()
    rows = [
        ("SSL_CERT_FILE", "ca.pem", f"{tmp_path}/ca.pem"),
        ("SSL_CERT_DIR", "certs:/etc/ssl/certs", f"{tmp_path}/certs:/etc/ssl/certs"),
        ("RECIPE_CACHE_SHARED", "../shared", f"{tmp_path.parent}/shared"),
        ("RECIPE_UV", "uv", "uv"),
        ("RECIPE_PYTHON", "./bin/python3", f"{tmp_path}/bin/python3"),
        ("PIP_FIND_LINKS", "wheels https://a.example/w missing", f"{tmp_path}/wheels https://a.example/w missing"),
        ("UV_FIND_LINKS", "wheels,/opt/wheels", f"{tmp_path}/wheels,/opt/wheels"),
        ("UV_INDEX", "own=wheels other=https://a.example/w", f"own={tmp_path}/wheels other=https://a.example/w"),
        ("PIP_CERT", "~/ca.pem", "~/ca.pem"),
        ("TMPDIR", "", ""),
    ]
    environment = {name: value for name, value, _ in rows}
    make_paths_absolute(environment)
    assert environment == {name: wanted for name, _, wanted in rows}


def test_a_folder_with_blanks_is_one_word_of_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my project"
    (folder / "wheels").mkdir(parents=True)
    monkeypatch.chdir(folder)
    environment = {"PIP_FIND_LINKS": "wheels"}
    make_paths_absolute(environment)
    assert environment == {"PIP_FIND_LINKS": f"file://{tmp_path}/my%20project/wheels"}
