"""What --sign refuses before anything is built; signing itself: tests/engines/test_inspect.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cli.inputs import find_sites_folder, make_context
from builder.compile.compile import compile_plan
from builder.execute.signature import find_signer, is_signed
from builder.model.finding import ConfigError, ToolError
from builder.model.plan import Plan
from builder.model.recipe import Recipe
from builder.model.site import Site
from builder.pipeline.resolution import load, resolve_recipe


def plan(folder: Path, site: str, backend: str) -> Plan:
    env = folder / "environment.yml"
    env.write_text("name: x\ndependencies: [python=3.12]\n")
    words = {"account": "", "torch_index": "", "driver": "", "backend": backend, "base": ""}
    return compile_plan(resolve_recipe(*_inputs(site, env), context=make_context(**words)))


def test_a_folder_cannot_be_signed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only a SIF can be signed"):
        find_signer(plan(tmp_path, "lumi-c", "tykky"), environment={"PATH": str(tmp_path)})


def test_no_engine(tmp_path: Path) -> None:
    made = plan(tmp_path, "local", "apptainer")
    with pytest.raises(ToolError, match="neither 'apptainer' nor 'singularity'"):
        find_signer(made, environment={"PATH": str(tmp_path)})


def test_what_is_no_sif_is_not_signed(tmp_path: Path) -> None:
    (tmp_path / "x.sif").write_bytes(b"x")
    assert not is_signed(tmp_path / "x.sif")
    assert not is_signed(tmp_path / "none.sif")


def _inputs(site: str, env: Path) -> tuple[Site, Recipe]:
    sites, recipes = load([site], [env], folder=find_sites_folder())
    return sites[0], recipes[0]
