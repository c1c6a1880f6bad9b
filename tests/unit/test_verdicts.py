"""What `check` says of lines of public recipes on every site: from documents of the projects, not our tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rows import rows
from verdicts.lines import PYG, SITES, VERDICTS
from verdicts.measure import OF_THE_SITE

from builder.model.finding import BuilderError, Finding
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve


def judge(folder: Path, text: str, site: str) -> tuple[str, tuple[Finding, ...], tuple[str, ...]]:
    folder.mkdir(parents=True, exist_ok=True)
    if text.startswith("conda "):
        path = folder / "environment.yml"
        names = "".join(f"  - {name}\n" for name in ["python=3.11", *text.split()[1:]])
        path.write_text(f"name: x\nchannels: [conda-forge]\ndependencies:\n{names}", encoding="utf-8")
    else:
        path = folder / "requirements.txt"
        path.write_text("".join(f"{line}\n" for line in text.split("; ")), encoding="utf-8")
    try:
        found = resolve(load_recipe(path, shown="x"), load_site(site), context=Context())
    except BuilderError as error:
        return "x", error.findings, ()
    told = [one for one in found.findings if one.level == "warning" and one.code not in OF_THE_SITE]
    return "w" if told else ".", found.findings, (*found.environment.pip_lines, *found.environment.conda)


@rows(("text", "expected", "evidence"), VERDICTS, ids=lambda text: text)
def test_the_verdict_of_a_line_on_every_site(text: str, expected: str, evidence: str, tmp_path: Path) -> None:
    found = "".join(judge(tmp_path, text, site)[0] for site in SITES)
    assert found == expected, f"{text}: {evidence}"


def test_the_table_is_large_enough() -> None:
    assert len(VERDICTS) >= 60
    assert {len(row[1]) for row in VERDICTS} == {len(SITES)}


@rows(
    ("text", "site", "code", "fix"),
    [
        (
            "cupy",
            "lumi-g",
            "build-needs",
            "amd-cupy==13.5.1 below a line of its own: --extra-index-url https://pypi.amd.com/simple",
        ),
        ("cupy", "local", "build-needs", "choose a site with NVIDIA GPUs"),
        (f"{PYG}2.3.0+cu121.html; torch==2.8.0; torch-scatter", "mn5", "torch-pin", "torch-2.8.0+cu1"),
        (f"{PYG}2.3.0+cu121.html; torch==2.8.0; torch-scatter", "local", "package-vendor", "torch-2.8.0+cpu.html"),
        (f"{PYG}2.3.0+cu121.html; torch==2.8.0; torch-scatter", "lumi-g", "package-vendor", "remove it for 'lumi-g'"),
        ("torch==2.8.0; torch-scatter", "local", "build-needs", f"{PYG}2.8.0+cpu.html"),
        ("torch==2.8.0; flash-attn==2.7.4", "lumi-g", "build-needs", "cotainr installs in one call of pip"),
        ("flax", "lumi-g", "default-wheel", "jax[rocm]"),
        ("conda pytorch=2.8 pytorch-scatter=2.1", "dawn", "conda-default", "write torch-scatter==2.1.*"),
        ("cupy-cuda12x", "mn5", "package-cuda", "write cupy-cuda12x[ctk]"),
        ("onnxruntime-gpu==1.22.0", "mn5", "package-cuda", "write onnxruntime-gpu[cuda,cudnn]"),
    ],
)
def test_a_refused_line_has_a_fix(text: str, site: str, code: str, fix: str, tmp_path: Path) -> None:
    findings = judge(tmp_path, text, site)[1]
    assert [fix in one.fix for one in findings if one.code == code] == [True], findings


@pytest.mark.parametrize(
    ("text", "site", "installed"),
    [
        ("cupy", "mn5", "cupy-cuda12x[ctk]"),
        ("cupy>=14", "mn5", "cupy-cuda12x[ctk]>=14"),
        ("conda pytorch=2.8 pytorch-lightning=2.1", "dawn", "pytorch-lightning==2.1.*"),
        ("conda pytorch=2.8 pyg", "mn5", "torch-geometric"),
    ],
)
def test_a_line_becomes_what_serves_the_site(text: str, site: str, installed: str, tmp_path: Path) -> None:
    assert installed in judge(tmp_path, text, site)[2]
