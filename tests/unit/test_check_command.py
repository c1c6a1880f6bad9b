"""`recipe check` in its four shapes, what it leaves out when asked, what it explains, and how long it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run
from builder.parse.site import find_site_files

ROOT = Path(__file__).parents[2]
RECIPE = """\
name: demo
channels: [defaults]
dependencies:
  - python=3.12
  - pip:
    - torch==2.8.0
    - jax[cuda12]==0.5.0
    - numpy
"""


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("environment.yml")
    path.write_text(RECIPE)
    return path


def test_a_table_has_sites_across_and_findings_down(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--format", "table", str(env)]) == 0
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head == ["finding", *find_site_files()]
    cells = {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}
    assert cells["package-counterpart"]["lumi-g"] == "warning"
    assert cells["package-counterpart"]["local"] == "note"
    assert cells["package-vendor"]["dawn"] == "error"
    assert cells["package-vendor"]["lumi-g"] == "-"
    assert cells["torch"]["lumi-g"] == "2.8.0+rocm6.4"


def test_sarif_has_a_rule_a_level_and_a_line(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--format", "sarif", "lumi-g", "dawn", str(env)]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == "2.1.0"
    (only,) = document["runs"]
    rules = {rule["id"]: rule for rule in only["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in only["results"]} == set(rules)
    assert rules["package-vendor"]["shortDescription"] == {"text": "A package works on another vendor's devices only."}
    assert all(result["locations"] for result in only["results"])
    result = next(item for item in only["results"] if item["ruleId"] == "package-vendor")
    assert result["level"] == "error"
    assert result["message"]["text"].startswith("dawn: 'jax[cuda12]==0.5.0' works on NVIDIA devices only")
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "environment.yml"}, "region": {"startLine": 7}}


def test_a_code_is_left_out_in_every_shape(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for shape in ("text", "table", "json", "sarif"):
        words = ["check", "--format", shape, "lumi-g", str(env)]
        run(words)
        before = capsys.readouterr()
        run([*words, "--ignore", "unpinned", "--ignore", "channel-defaults"])
        after = capsys.readouterr()
        for code in ("unpinned", "channel-defaults"):
            assert code in before.out + before.err, shape
            assert code not in after.out + after.err, shape
        assert "package-counterpart" in after.out + after.err, shape


def test_an_error_cannot_be_left_out(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "dawn", str(env), "--ignore", "package-vendor"]) == 2
    assert "'package-vendor' is an error on 'dawn': it cannot be ignored" in capsys.readouterr().err


def test_every_package_is_explained_in_a_line(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--explain", "lumi-g", str(env)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    index = "https://download.pytorch.org/whl/rocm6.4"
    for line in (
        "python=3.12 -> python=3.12 conda's Python",
        f"torch==2.8.0 -> torch==2.8.0+rocm6.4 the build for lumi-g, from {index}",
        "jax[cuda12]==0.5.0 -> jax[rocm]==0.5.0 its counterpart for AMD GPUs, with the same module",
        "numpy -> numpy pip",
    ):
        assert lines.count(line) == 1, lines


def test_a_fault_of_form_cannot_be_left_out(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.write_text("dependencies:\n\t- python=3.12\n")
    assert run(["check", "local", str(env), "--ignore", "yaml-tab"]) == 2
    assert "'yaml-tab' says that the file cannot be read: it cannot be ignored" in capsys.readouterr().err


@rows("words", [["nosite"], ["local", "--ignore", "unpined"], ["local", "--base", "no/such.sif"]])
@rows("shape", ["json", "sarif", "github"])
def test_faulty_arguments_are_in_every_document(
    words: list[str], shape: str, env: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", *words[:1], str(env), *words[1:], "--format", shape]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error[")
    if shape == "github":
        assert out.startswith("::error file=environment.yml,line=1,title=")
    else:
        found = json.loads(out)
        assert len(found["outcomes"][0]["findings"] if shape == "json" else found["runs"][0]["results"]) == 1


def test_faulty_arguments_without_a_file_have_no_place(env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env.unlink()
    assert run(["check", "nosite", "--format", "github"]) == 2
    assert capsys.readouterr().out.startswith("::error title=site-unknown::")
    assert run(["check", "nosite", "--format", "sarif"]) == 2
    (only,) = json.loads(capsys.readouterr().out)["runs"]
    (note,) = only["invocations"][0]["toolConfigurationNotifications"]
    assert (only["results"], note["descriptor"]["id"]) == ([], "site-unknown")


@pytest.mark.parametrize("shape", ["json", "sarif", "github", "table"])
def test_corrections_are_printed_in_one_shape(shape: str, env: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = env.read_text()
    assert run(["check", "--fix", "--format", shape, "local", str(env)]) == 2
    assert f"--format {shape} the findings" in capsys.readouterr().err
    assert env.read_text() == before
