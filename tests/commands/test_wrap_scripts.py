"""The scripts that make wrappers, under shellcheck."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_lint import tool

from builder.compile.image_plans import make_image_target
from builder.compile.wrap_plans import WrapSource, make_wrap_plan
from builder.model.target import Context
from builder.parse.site import load_site

FOLDER = WrapSource(path="/data/env", programs=("bin",), folder=True, prefixes=("/a b",), python="bin/python3")


@pytest.mark.parametrize("wrapped", [WrapSource(path="/data/x.sif", programs=("/opt/env/bin",)), FOLDER])
@pytest.mark.parametrize("site", ["lumi-c", "lumi-g"])
def test_each_script_passes_shellcheck(wrapped: WrapSource, site: str, tmp_path: Path) -> None:
    target = make_image_target(load_site(site), image=wrapped.path, context=Context(tool="recipe"), folder=True)
    files = make_wrap_plan(target, wrapped).files
    for file in files:
        (tmp_path / file.path).write_text(file.text)
    scripts = [file.path for file in files if file.path.endswith((".sh", ".sbatch"))]
    command = [tool("shellcheck"), "--exclude=SC1091", *scripts]  # it does not follow what they source
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout == ""
