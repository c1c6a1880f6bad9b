"""What strangers wrote: nothing of it is replaced in silence, and what a message advises works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.cli.fixing import corrected
from builder.execute.doctor_network import servers
from builder.model.catalog import load_site
from builder.model.finding import BuilderError, ConfigError, Finding, errors
from builder.model.reading.load import load_recipe
from builder.model.target import Context, Target
from builder.resolve.target import resolve

HEAD = "name: x\nchannels: [conda-forge]\ndependencies:\n"


def read(folder: Path, *conda: str, pip: tuple[str, ...] = (), site: str = "local") -> Target:
    lines = [f"  - {one}\n" for one in conda]
    lines += ["  - pip:\n", *(f"    - {one}\n" for one in pip)] if pip else []
    path = folder / "x.yml"
    path.write_text(HEAD + "".join(lines))
    return resolve(load_recipe(path), load_site(site), context=Context())


def faults(folder: Path, *conda: str, pip: tuple[str, ...] = (), site: str = "local") -> tuple[Finding, ...]:
    with pytest.raises(BuilderError) as caught:
        read(folder, *conda, pip=pip, site=site)
    return caught.value.findings


def fixed(folder: Path, finding: Finding) -> str:
    assert finding.edit is not None
    text, made = corrected((folder / "x.yml").read_text(), [finding.edit])
    assert made == 1
    return text


@pytest.mark.parametrize("wrong", [
    "three", "3.11t", "3.l1", "3,11", "=3.1O", "3.x", "latest", "3.12.", "3..12", "3.13t.*", ">=3.10,<3.l2", "3.10|3.1l",
])  # fmt: skip
def test_a_python_that_is_none_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"python{wrong if wrong[0] in '=<>' else '=' + wrong}", "numpy=2")
    (finding,) = caught.value.findings
    assert (finding.code, finding.at and finding.at.line) == ("conda-version", 4)
    assert finding.fix


@pytest.mark.parametrize(("wrong", "right"), [("3.11t", "3.11"), ("3.l1", "3.11"), ("3,11", "3.11"), ("3.1O", "3.10")])
def test_a_slip_in_the_version_of_python_is_corrected(tmp_path: Path, wrong: str, right: str) -> None:
    (finding,) = faults(tmp_path, f"python={wrong}")
    assert f"- python={right}\n" in fixed(tmp_path, finding)


@pytest.mark.parametrize("spec", ["python-freethreading", "python=3.13=*_cp313t", "cpython-freethreading=3.13"])
def test_the_free_threaded_python_is_refused_by_name(tmp_path: Path, spec: str) -> None:
    (finding,) = faults(tmp_path, spec)
    assert "free-threaded" in finding.message


@pytest.mark.parametrize(("spec", "python", "written"), [
    ("python=3.11", "3.11", "python=3.11"),
    ("python=3.14.0rc2", "3.14", "python=3.14.0rc2"),
    ("python 3.11.*", "3.11", "python=3.11.*"),
    ("python=3.10|3.11", "3.11", "python==3.10,3.11.*|==3.11,3.11.*"),
    ("python>=3.9,<3.11", "3.10", "python>=3.9,<3.11,3.10.*"),
])  # fmt: skip
def test_a_python_is_what_was_asked_for(tmp_path: Path, spec: str, python: str, written: str) -> None:
    target = read(tmp_path, spec, "samtools", pip=("torch",))
    found = next(text for text in target.environment.conda if text.startswith("python"))
    assert target.environment.python == python
    assert found.replace(" ", "") == written.replace(" ", "")


@pytest.mark.parametrize(("written", "meant"), [
    ("pytorch==2.8.0", "torch"), ("sklearn", "scikit-learn"), ("cv2", "opencv-python"), ("PIL", "pillow"),
    ("yaml==6.0", "pyyaml"), ("opencv==4.10.0", "opencv-python"),
])  # fmt: skip
def test_the_name_that_python_imports_is_corrected(tmp_path: Path, written: str, meant: str) -> None:
    (finding,) = errors(faults(tmp_path, "python=3.12", pip=(written,)))
    assert (finding.code, finding.fix) == ("name-import", f"write {meant}")
    (tmp_path / "x.yml").write_text(fixed(tmp_path, finding))
    assert resolve(load_recipe(tmp_path / "x.yml"), load_site("local"), context=Context()) is not None


@pytest.mark.parametrize("written", ["bs4", "imblearn", "dotenv"])
def test_a_name_of_another_package_is_a_warning(tmp_path: Path, written: str) -> None:
    found = read(tmp_path, "python=3.12", pip=(f"{written}==1.0",)).findings
    assert [(one.code, one.level) for one in found if one.level != "note"] == [("name-import", "warning")]


def test_an_index_of_ones_own_may_have_any_name(tmp_path: Path) -> None:
    found = read(tmp_path, "python=3.12", pip=("--extra-index-url https://example.org/simple", "sklearn==1.0")).findings
    assert [one.level for one in found if one.code == "name-import"] == ["warning"]


@pytest.mark.parametrize(("pip", "torch"), [
    (('torch==2.8.0; python_version<"3.9"',), ()),
    (('torch==2.8.0; python_version>="3.9"',), ("torch==2.8.0+cpu",)),
    (('torch==2.2.0; python_version<"3.9"', 'torch==2.8.0; python_version>="3.9"'), ("torch==2.8.0+cpu",)),
    (('torch==2.8.0; python_full_version<"3.9.7"',), ()),
    (('timm==1.0.0; python_version<"3.9"',), ()),
])  # fmt: skip
def test_a_marker_on_torch_is_judged_with_the_images_python(
    tmp_path: Path, pip: tuple[str, ...], torch: tuple[str, ...]
) -> None:
    target = read(tmp_path, "python=3.12", pip=(*(f"'{line}'" for line in pip), "numpy==2.2.6"))
    assert target.environment.torch_lines == torch
    assert "numpy==2.2.6" in target.environment.pip_lines
    told = [package.asked for package in target.packages if package.became == "-"]
    assert len(told) == len(pip) - len(torch)


def test_doctor_reads_references_as_the_builder_does() -> None:
    found = servers(load_site("lumi-c"), environment={})
    assert "https://registry-1.docker.io/v2/" in found.values()
    assert not any(":24" in url for url in found.values()), json.dumps(found)


def test_a_torch_is_proposed_that_has_wheels_for_the_python(tmp_path: Path) -> None:
    for site in ("lumi-g", "mn5", "local", "dawn"):
        (first, *_) = faults(tmp_path, "python=3.13", pip=("torch==2.99",), site=site)
        proposed = first.fix.split("from ")[1].split(" to ")[0]
        read(tmp_path, "python=3.13", pip=(f"torch=={proposed}",), site=site)


def test_a_request_that_contradicts_itself_says_so(tmp_path: Path) -> None:
    (finding,) = faults(tmp_path, "python=3.12", pip=("'torch>=2.9,<2.7'",))
    assert "contradicts itself" in finding.message
