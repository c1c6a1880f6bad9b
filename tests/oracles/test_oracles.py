"""The comparison finds what is planted in a sample of each format, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracles.__main__ import main
from oracles.compare import compare
from oracles.formats import READERS

SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize(
    ("kind", "sample", "planted"),
    [
        ("cog", "cog.json", ["torch 2.8.0: torchvision is 0.23.0 here, 0.22.9 there"]),
        (
            "matrix",
            "matrix.py.txt",
            ["torch 2.8.0: rocm6.9 there, and not here", "torch 2.8.0: rocm6.4 here, and not there"],
        ),
        ("uv", "uv.rs", ["driver for cu126: 525.60.13 here, 525.61.13 there"]),
    ],
)
def test_the_planted_difference_is_the_one_found(
    kind: str, sample: str, planted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    published = READERS[kind]((SAMPLES / sample).read_text(encoding="utf-8"))
    found = [line for line in compare(published) if not line.startswith(("#", "index "))]
    assert found == planted
    assert main([kind, str(SAMPLES / sample)]) == 1
    assert planted[0] in capsys.readouterr().out


def test_what_the_samples_say_is_read() -> None:
    cog = READERS["cog"]((SAMPLES / "cog.json").read_text(encoding="utf-8"))
    assert {one.torch: sorted(one.builds) for one in cog.releases}["2.6.0"] == ["cpu", "cu126"]
    assert "# not compared, not in the tables: 0.4.1" in list(compare(cog))
    uv = READERS["uv"]((SAMPLES / "uv.rs").read_text(encoding="utf-8"))
    assert uv.drivers == {"cu118": "450.80.02", "cu126": "525.61.13", "cu130": "580"}
    assert len(uv.gfx["rocm6.3"]) == 11
    assert "index rocm6.4: here, and not there" in list(compare(uv))


@pytest.mark.parametrize(
    ("kind", "sample", "planted"),
    [
        (
            "parselmouth",
            "parselmouth.json",
            ["umap-learn: umap-learn here, umap there", "samtools: no Python package here, pysam there"],
        ),
        ("grayskull", "grayskull.yaml", ["python-graphviz: graphviz here, graphviz2 there"]),
    ],
)
def test_planted_names_are_the_ones_found(
    kind: str, sample: str, planted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([kind, str(SAMPLES / sample)]) == 1
    found = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert found == planted


def test_without_a_file_the_usage_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "cog|matrix|uv|parselmouth|grayskull FILE" in capsys.readouterr().err
