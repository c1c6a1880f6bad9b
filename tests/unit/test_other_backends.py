"""The fix for a key that a backend does not support names each backend of the site that does, and only these."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builder.cli.main import run
from builder.parse.site import find_site_files, load_site

KEYS = {
    "run": "run: [echo hi]", "system": "system: [libgl1]", "files": "files: {e.yml: /opt/e}",
    "labels": "labels: {a.b: c}",
    "base": "base: docker://docker.io/library/python:3.12-slim-bookworm",
}  # fmt: skip
WAYS = [(site, backend) for site in find_site_files() for backend in load_site(site).build.backends]


@pytest.mark.parametrize(("site", "backend"), WAYS)
def test_each_named_backend_serves_the_key(
    site: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for key, text in KEYS.items():
        Path("e.yml").write_text(f"name: e\ndependencies: [python=3.12, numpy=2.2.1]\ncontainer:\n  {text}\n")
        run(["check", site, "e.yml", "--backend", backend])
        found = re.search(rf"container\.{key}\n  fix: (?!no action)(.*)", capsys.readouterr().err)
        named = set(re.findall(r"--backend (\w+)", found[1])) if found else set()
        served = {one for one in load_site(site).build.backends if run(["check", site, "e.yml", "--backend", one]) == 0}
        assert named <= served - {backend}, (key, found)
        assert not found or named == served, (key, found)
