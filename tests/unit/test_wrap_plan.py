"""The plan of wrappers: what is called, and what each wrapper sources."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builder.compile.image_plans import make_image_target
from builder.compile.wrap_plans import WrapSource, make_environ, make_wrap_plan
from builder.inspect.wrap_source import check_plain, read_installation
from builder.model.finding import ConfigError
from builder.model.plan import Plan, from_json, to_json
from builder.model.target import Context, Target
from builder.parse.site import load_site

FOLDER = WrapSource(
    path="/data/env", programs=("bin", "lib/x/run"), folder=True, prefixes=("/home/me/env",), python="bin/python3"
)
IMAGE = WrapSource(path="/data/x.sif", programs=("/opt/env/bin",))


def target(path: str = "/data/x.sif", site: str = "lumi-g") -> Target:
    return make_image_target(load_site(site), image=path, context=Context(tool="recipe"), folder=True)


@pytest.fixture(params=[IMAGE, FOLDER, replace(FOLDER, prefixes=())], ids=["image", "folder", "plain-folder"])
def plan(request: pytest.FixtureRequest) -> Plan:
    return make_wrap_plan(target(request.param.path), request.param)


def test_a_plan_is_read_as_it_was_written(plan: Plan) -> None:
    assert from_json(to_json(plan)) == plan


def test_the_module_of_lumi_is_loaded_by_the_script(plan: Plan) -> None:
    script = next(file.text for file in plan.files if file.path == "1-wrap.sh")
    assert "use_module load lumi-container-wrapper" in script
    assert plan.steps[0].programs == ()
    assert plan.steps[0].batch == "1-wrap.sbatch"


def test_only_a_folder_with_another_path_is_changed() -> None:
    names = {file.path for file in make_wrap_plan(target(), replace(FOLDER, prefixes=())).files}
    assert "relocate.py" not in names
    text = next(file.text for file in make_wrap_plan(target(), FOLDER).files if file.path == "post-install.sh")
    assert '"${CW_INSTALLATION_PATH}/bin/python3" -I -S -B relocate.py "${CW_INSTALLATION_PATH}" /home/me/env' in text


@pytest.mark.parametrize(("flag", "lines"), [("--nv", 1), ("--rocm", 1), ("", 0)])
def test_the_gpus_of_the_site_are_given_by_the_engines_variables(flag: str, lines: int) -> None:
    found = target()
    changed = replace(found, site=replace(found.site, runtime=replace(found.site.runtime, gpu_flag=flag)))
    name = flag.removeprefix("--").upper()
    assert make_environ(changed, isolated=True).count(f"export APPTAINER_{name}=1 SINGULARITY_{name}=1") == lines
    assert "SINGULARITY" not in make_environ(changed, isolated=False)


@pytest.mark.parametrize("path", ["/a b", "/a,b", "/a:b", "/a$b", '/a"b', "-w", "/a`b`", "/a\nb", ""])
def test_a_path_that_tykky_would_split_or_expand_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="tykky cannot be given"):
        check_plain(path, what="a program")


def make_scripts(folder: Path, *heads: str) -> None:
    (folder / "bin").mkdir()
    for number, head in enumerate(heads):
        (folder / "bin" / f"tool{number}").write_text(f"{head}\nprint()\n")
        (folder / "bin" / f"tool{number}").chmod(0o755)


@pytest.mark.parametrize(
    ("heads", "prefixes"),
    [
        (["#!/home/me/env/bin/python3.11"], ("/home/me/env",)),
        (['#!/bin/sh\n\'\'\'exec\' "/home/me/a long env/bin/python" "$0" "$@"'], ("/home/me/a long env",)),
        (["#!/usr/bin/python3", "#!/usr/bin/env python3", "#!/bin/sh"], ()),
        (["#!/b/bin/python", "#!/a/bin/python", "#!/a/bin/python3"], ("/a", "/b")),
    ],
)
def test_the_paths_that_scripts_name(tmp_path: Path, heads: list[str], prefixes: tuple[str, ...]) -> None:
    make_scripts(tmp_path, "#!/bin/sh", *heads)
    assert read_installation(tmp_path, programs=["bin"]).prefixes == ()  # no Python of its own would change them
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    assert read_installation(tmp_path, programs=["bin"]).prefixes == prefixes


def test_a_virtual_environment_without_its_python_is_refused(tmp_path: Path) -> None:
    make_scripts(tmp_path, "#!/bin/sh")
    (tmp_path / "bin" / "python3").write_text("")
    (tmp_path / "bin" / "python3").chmod(0o755)
    (tmp_path / "pyvenv.cfg").write_text("home = /opt/elsewhere/bin\n")
    with pytest.raises(ConfigError, match="is of '/opt/elsewhere/bin', which is not here"):
        read_installation(tmp_path, programs=["bin"])
