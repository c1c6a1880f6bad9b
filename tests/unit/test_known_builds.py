"""The fix for a package that requires another torch, or has another build, names one that is known to exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run
from builder.parse.gpu_tables import load_package_table

LINES = (
    ("xformers",), ("xformers==0.0.28",), ("xformers==0.0.28+rocm6.1",), ("xformers==0.0.28+rocm6.4",),
    ("xformers==0.0.28+cu121",), ("torch==2.6.0", "xformers==0.0.28"), ("torch==2.6.0", "xformers==0.0.28+rocm6.1"),
    ("torch==2.9.0", "xformers==0.0.27"), ("torch==2.6.0", "torchao==0.9.0+rocm6.3"), ("torch-tensorrt==2.6.0",),
    ("torch==2.8.0", "torch-tensorrt==2.6.0"), ("jax[cuda12]==0.9.0",), ("jax[cuda13]==0.11.0",),
)  # fmt: skip
ERROR = re.compile(r"error\[[\w-]+\]: '([\w-]+)[^\n]*(?:\n  at:[^\n]*)?\n  fix: ([^\n]*)")
REQUIREMENT = re.compile(r"[a-z][\w-]*(?:\[[\w-]+\])?==[\w.+]+")


def name(line: str) -> str:
    return re.split(r"[\[=]", line)[0]


def follow(lines: tuple[str, ...], *, wrong: str, fix: str) -> tuple[str, ...]:
    """The lines after the first choice of a fix was typed."""
    first = fix.partition(", or ")[0]
    assert "if http" not in fix, fix
    assert first.startswith(("write ", "remove it", "for AMD there is: ")), fix
    if first.startswith("remove it"):
        return tuple(line for line in lines if name(line) != wrong)
    named = REQUIREMENT.findall(first)
    assert named, fix
    return (*(line for line in lines if name(line) not in map(name, named)), *named)


@pytest.mark.parametrize("lines", LINES, ids="; ".join)
@pytest.mark.parametrize("site", ["lumi-g", "frontier", "mn5", "dawn"])
def test_a_fix_that_is_typed_removes_the_error(
    site: str, lines: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, seen = tmp_path / "e.yml", set[tuple[str, ...]]()
    while lines not in seen:
        seen.add(lines)
        file.write_text("\n".join(["dependencies:", "- python=3.12", "- pip:", *(f"  - {one}" for one in lines)]))
        if run(["check", site, str(file)]) == 0:
            return
        shown = "".join(capsys.readouterr())
        errors = ERROR.findall(shown)
        assert len({wrong for wrong, _ in errors}) == len(errors), shown  # one fix for one line
        for wrong, fix in errors:
            lines = follow(lines, wrong=wrong, fix=fix)
        if not lines:
            return
    pytest.fail(f"{lines} are refused after their own fix: {shown}")


@rows(
    ("line", "torch"),
    [
        ("xformers==0.0.25", "2.2.1"),
        ("xformers==0.0.27", "2.3.1"),
        ("xformers==0.0.27.post1", "2.4.0"),
        ("xformers==0.0.28.post2", "2.5.0"),
        ("xformers==0.0.28+cu124", "2.4.1"),
        ("torch-tensorrt==2.6.0", "2.6.0"),
    ],
)
def test_torch_is_the_one_that_a_package_requires(
    line: str, torch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e.yml").write_text(f"dependencies:\n- python=3.11\n- pip:\n  - {line}\n")
    assert run(["check", "mn5", str(tmp_path / "e.yml")]) == 0
    assert f" {torch}+cu" in capsys.readouterr().out


def test_each_known_build_has_a_torch() -> None:
    built = [pin for pin in load_package_table().torch_pins if pin.builds]
    assert [pin.package for pin in built] == ["xformers"]
    assert all(
        version in pin.torch for pin in built for versions in pin.builds.values() for version in versions.split()
    )
