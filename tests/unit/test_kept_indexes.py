"""The recipe's indexes of PyTorch: kept for a requirement that pins a build of it, and for no other."""

from __future__ import annotations

from pathlib import Path

from support.rows import rows

from builder.compile.compile import compile_plan
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve

HOST = "https://download.pytorch.org/whl"


def resolved(folder: Path, *lines: str, site: str = "lumi-g") -> Target:
    path = folder / "requirements.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return resolve(load_recipe(path, shown="requirements.txt"), load_site(site), context=Context())


@rows(
    ("option", "other", "kept"),
    [
        (f"--extra-index-url {HOST}/rocm6.4", "torchao==0.5+rocm6.4", f"--extra-index-url {HOST}/rocm6.4"),
        (f"--index-url {HOST}/rocm6.4", "torchao==0.5+rocm6.4", f"--extra-index-url {HOST}/rocm6.4"),
        (f"--find-links {HOST}/rocm6.4", "torchao==0.5+rocm6.4", f"--find-links {HOST}/rocm6.4"),
        (f"--find-links {HOST}/torch_stable.html", "torchao==0.5+rocm6.1", f"--find-links {HOST}/torch_stable.html"),
        ("", "torchao==0.5+rocm6.1", f"--extra-index-url {HOST}/rocm6.1"),
        (f"--extra-index-url {HOST}/rocm6.1/", "torchao==0.5+rocm6.1", f"--extra-index-url {HOST}/rocm6.1/"),
        (f"--extra-index-url {HOST}/rocm6.4", "six==1.16.0", ""),
        (f"--index-url {HOST}/rocm6.4", "six==1.16.0", ""),
        ("--extra-index-url https://example.org/simple", "six==1.16.0", "--extra-index-url https://example.org/simple"),
    ],
)
def test_an_index_is_kept_for_the_build_that_it_alone_has(tmp_path: Path, option: str, other: str, kept: str) -> None:
    target = resolved(tmp_path, option, "torch==2.4.0", other)
    options = [line for line in target.environment.pip_options if line.startswith("--")]
    assert kept in options if kept else not options
    assert len(options) == len(set(options))
    unused = any(f.code == "torch-index" for f in target.findings)
    assert unused == (not kept and HOST in option)
    plan = compile_plan(target)
    assert not kept or any(kept in file.text for file in plan.files)


@rows(
    ("other", "told"),
    [
        ("torchao==0.5+rocm6.4", "remove it for 'lumi-g', or write it without the build"),
        ("torchao==0.5+rocm6.1", ""),
    ],
)
def test_another_build_than_torchs_is_a_warning(tmp_path: Path, other: str, told: str) -> None:
    target = resolved(tmp_path, f"--extra-index-url {HOST}/rocm6.4", "torch==2.4.0", other)
    fixes = [finding.fix for finding in target.findings if finding.code == "torch-pin" and finding.level == "warning"]
    assert any(told in fix for fix in fixes) if told else not fixes
