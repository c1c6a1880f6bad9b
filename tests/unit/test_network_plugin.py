"""The plug-in of NCCL and RCCL for a site's network: from a module, in the base image, or known to be missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from support.rows import rows

from builder.compile.compile import compile_plan
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve


def decide(folder: Path, site: str, backend: str = "", line: str = "torch==2.8.0") -> Target:
    path = folder / "requirements.txt"
    path.write_text(f"{line}\n")
    return resolve(load_recipe(path), load_site(site), context=Context(backend=backend))


def read(target: Target, name: str) -> str:
    return next(file.text for file in compile_plan(target).files if file.path == name)


def list_codes(target: Target) -> set[str]:
    return {finding.code for finding in target.findings}


def test_an_environment_of_tykky_has_no_plugin(tmp_path: Path) -> None:
    target = decide(tmp_path, "lumi-g", "tykky")
    (found,) = [one for one in target.findings if one.code == "network-plugin"]
    assert found.level == "warning"
    assert found.message == (
        "an environment of tykky has no plug-in for the network of 'lumi-g': between nodes torch uses TCP"
    )
    assert found.fix == "for jobs of several nodes use --backend cotainr; on one node no action is needed"


def test_without_a_plugin_no_floor_is_set_that_tcp_cannot_reach(tmp_path: Path) -> None:
    text = read(decide(tmp_path, "lumi-g", "tykky"), "run/nodes.sbatch")
    assert "--expect-network" not in text
    assert "--floor 128MiB=118.75" in text, "on one node the network is not used"
    assert "80.75" not in text


@rows("site, backend", [("lumi-g", "cotainr"), ("lumi-g", "layers"), ("frontier", "apptainer"), ("mn5", "docker")])
def test_where_there_is_a_plugin_it_is_expected(site: str, backend: str, tmp_path: Path) -> None:
    target = decide(tmp_path, site, backend)
    assert "network-plugin" not in list_codes(target)
    assert "--expect-network" in read(target, "run/nodes.sbatch")


@rows("site, line", [("lumi-c", "torch==2.8.0"), ("lumi-g", "numpy==2.1.0")])
def test_who_uses_no_gpu_is_told_nothing(site: str, line: str, tmp_path: Path) -> None:
    assert "network-plugin" not in list_codes(decide(tmp_path, site, "tykky", line))


def test_frontier_takes_the_plugin_of_its_module(tmp_path: Path) -> None:
    target = decide(tmp_path, "frontier")
    job = read(target, "run/job.sh")
    start = job.index('if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then\n    use_module load rocm\n')
    assert job.index("use_module load rccl-net-plugin\n    find_plugin\nfi", start) < job.index("set -u", start)
    assert 'site_variable NCCL_NET "OFI"' in job
    assert 'options+=(--bind "${NCCL_NET_PLUGIN%/*}")' in read(target, "run/container.sh")
    assert "find_plugin" not in read(decide(tmp_path, "lumi-g"), "run/job.sh")


def test_without_its_module_frontier_has_none(tmp_path: Path) -> None:
    site = load_site("frontier")
    bare = replace(site, launch=replace(site.launch, plugin_modules=()))
    path = tmp_path / "requirements.txt"
    path.write_text("torch==2.8.0\n")
    target = resolve(load_recipe(path), bare, context=Context())
    assert target.lacks_plugin
    assert "network-plugin" in list_codes(target)
