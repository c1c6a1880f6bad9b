"""A base image on the disks of another site is refused before a build looks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run
from builder.parse.site import load_site

OF_LUMI = "/appl/local/containers/sif-images/any.sif"
LINE = "error[base-missing]: the base image '{}' is on the disks of 'lumi-g', which '{}' does not have"


@rows(
    ("site", "base", "refused"),
    [
        ("frontier", OF_LUMI, True),
        ("dawn", OF_LUMI, True),
        ("mn5", OF_LUMI, True),
        ("local", OF_LUMI, True),
        ("lumi-g", OF_LUMI, False),
        ("lumi-c", OF_LUMI, False),
        ("frontier", "/lustre/orion/proj/any.sif", False),
        ("frontier", "/appl/other/any.sif", False),
    ],
)
def test_a_base_image_on_the_disks_of_another_site(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    site: str,
    base: str,
    refused: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e.yml").write_text("name: e\ndependencies: [python=3.12]\n")
    Path("own.yml").write_text(f"name: e\ndependencies: [python=3.12]\ncontainer:\n  base: {base}\n")
    lines = (
        ["check", site, "e.yml", "--base", base],
        ["check", site, "own.yml"],
        ["plan", "--show", site, "own.yml"],
    )
    for line in (*lines, *([["lock", "--offline", site, "own.yml"]] if refused else [])):
        code, shown = run(line), capsys.readouterr().err
        assert (LINE.format(base, site) in shown) == refused, (line, shown)
        assert (code == 3) or not refused
        assert not refused or f"leave it out for {load_site(site).base_images[0].reference}" in shown


def test_a_file_that_is_here_is_not_judged_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.pipeline.resolution.find_disk_owners", pytest.fail)
    (tmp_path / "e.yml").write_text("name: e\ndependencies: [python=3.12]\n")
    (tmp_path / "base.sif").write_bytes(b"")
    run(["check", "frontier", str(tmp_path / "e.yml"), "--base", str(tmp_path / "base.sif")])
