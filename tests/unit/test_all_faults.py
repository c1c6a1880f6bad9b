"""All faults of a file in one run, and no fix that leads to the next refusal."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from builder.cli.main import run
from builder.execute.diagnose import explain
from builder.model.finding import Finding, UnsupportedError
from builder.model.plan import Step
from builder.model.recipe import Container, Smoke
from builder.model.target import Context
from builder.parse.gpu_tables import load_torch_table
from builder.parse.recipe import load_recipe
from builder.parse.site import find_site_files, load_site
from builder.pipeline.resolution import resolve_recipe
from builder.resolve.checks.vendors import suggest_counterpart

ROOT = Path(__file__).parents[2]
SITES = tuple(find_site_files())


def refusals(path: Path, site: str, text: str) -> dict[str, Finding]:
    """The errors by code."""
    path.write_text(text)
    try:
        resolve_recipe(load_site(site), load_recipe(path), context=Context())
    except UnsupportedError as error:
        return {finding.code: finding for finding in error.findings if finding.level == "error"}
    return {}


EXPORT = """\
name: export
dependencies:
  - python=3.11
  - vs2015_runtime=14.3
  - cudatoolkit=11.8
  - magma=2.7=cuda118
  - pip:
    - torch==2.1.0+cu121
    - torchvision==0.16.0+cu121
    - sklearn==1.3
container:
  system: [git]
"""


def test_a_refused_torch_hides_no_other_fault(tmp_path: Path) -> None:
    found = refusals(tmp_path / "environment.yml", "lumi-g", EXPORT)
    assert {"torch-vendor", "export-system", "name-import", "cotainr-system"} <= set(found)


def test_a_build_of_conda_is_named_with_the_torch(tmp_path: Path) -> None:
    text = "dependencies:\n  - python=3.11\n  - numba=0.58=cuda118_0\n  - pip: [torch==2.1.0+cu121]\n"
    assert {"torch-vendor", "conda-build"} <= set(refusals(tmp_path / "environment.yml", "lumi-g", text))


def test_every_companion_with_a_build_is_named(tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text(EXPORT)
    with pytest.raises(UnsupportedError) as caught:
        resolve_recipe(load_site("lumi-g"), load_recipe(path), context=Context())
    lines = [finding.at.line for finding in caught.value.findings if finding.code == "torch-vendor" and finding.at]
    assert lines == [8, 9]


def test_a_base_images_python_hides_no_other_fault(tmp_path: Path) -> None:
    text = "dependencies: [python=3.7, vs2015_runtime=14, openmpi=5]\ncontainer: {python: base}\n"
    assert {"base-python", "export-system"} <= set(refusals(tmp_path / "x.yml", "mn5", text))


def test_a_refused_build_names_what_the_site_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.txt"
    found = refusals(path, "lumi-g", "torch==2.1.0+cu121\n")["torch-vendor"]
    assert found.edit is None
    match = re.fullmatch(r"use torch (\S+) to (\S+), without a build", found.fix)
    assert match is not None
    assert [refusals(path, "lumi-g", f"torch=={version}\n") for version in match.groups()] == [{}, {}]
    path.write_text("torch==2.1.0+cu121\n")
    assert run(["check", "--fix", "lumi-g", str(path)]) == 3
    assert path.read_text() == "torch==2.1.0+cu121\n"
    assert "no finding has an exact fix" in capsys.readouterr().err


@pytest.mark.property
def test_no_edit_of_torch_leads_to_the_next_refusal(tmp_path: Path) -> None:
    path, made = tmp_path / "x.txt", 0
    for site in SITES:
        for row in load_torch_table().releases[::4]:
            for token in ("cu121", "rocm6.2.4", "xpu"):
                for finding in refusals(path, site, f"torch=={row.torch}+{token}\n").values():
                    if finding.edit is not None:
                        made += 1
                        assert refusals(path, site, f"{finding.edit.new}\n") == {}, (site, finding)
    assert made


MISTAKEN = {"site", "sites", "backend", "output"}  # keys that people write; the decoder's answer names them


def test_every_key_that_a_text_names_is_one() -> None:
    known = {field.name for field in dataclasses.fields(Container)}
    below = {field.name for field in dataclasses.fields(Smoke)}
    files = [*ROOT.glob("builder/**/*.py"), *ROOT.glob("builder/data/**/*.yaml"), *ROOT.glob("docs/**/*.md")]
    wrong = []
    for file in files:
        for key, more in re.findall(r"\bcontainer\.([a-z_]+)(?:\.([a-z_]+))?", file.read_text(encoding="utf-8")):
            if key not in known | {"sh", "sif"} | MISTAKEN or (key == "smoke" and more and more not in below):
                wrong.append(f"{file.relative_to(ROOT)}: container.{key}.{more}")
    assert wrong == []


def test_the_line_of_another_index_is_one_that_is_read(tmp_path: Path) -> None:
    step = Step(name="build", kind="build", why="", script="1-build.sh")
    fix = explain(step, ["ERROR: No matching distribution found for six==99.0"], 1).fix
    match = re.search(r"'(--extra-index-url) URL'", fix)
    assert match is not None
    path = tmp_path / "x.yml"
    line = f"{match[1]} https://example.org/simple"
    path.write_text(f"dependencies:\n  - python=3.12\n  - pip:\n    - {line}\n    - six\n")
    assert load_recipe(path).pip_options.extra_index_urls == ("https://example.org/simple",)


def test_what_no_vendor_builds_is_removed() -> None:
    assert suggest_counterpart("jax", site=load_site("dawn")) == "remove it: no build for Intel is known"
