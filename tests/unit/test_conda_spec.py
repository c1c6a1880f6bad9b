"""Conda dependencies in every form that conda reads, and those that it does not."""

from __future__ import annotations

import pytest
from support.rows import rows

from builder.model.finding import ConfigError, Location
from builder.model.recipe import CondaSpec
from builder.parse.matchspec import check_channel, parse_conda_spec
from builder.parse.python_versions import check_python

AT = Location(file="environment.yml", line=7, key="dependencies[0]")
URL = "https://conda.anaconda.org/conda-forge/linux-64/numpy-1.26.4-py312heda63a1_0.conda"


def parse(text: str) -> CondaSpec:
    return parse_conda_spec(text, at=AT)


@rows(
    ("text", "name", "version", "build"),
    [
        ("numpy", "numpy", "", ""),
        ("NumPy", "numpy", "", ""),
        ("_libgcc_mutex", "_libgcc_mutex", "", ""),
        ("__cuda>=12", "__cuda", ">=12", ""),
        ("ruamel.yaml", "ruamel.yaml", "", ""),
        ("gxx_linux-64=13", "gxx_linux-64", "=13", ""),
        ("numpy=1.26", "numpy", "=1.26", ""),
        ("numpy==1.26.4", "numpy", "==1.26.4", ""),
        ("numpy=1.*", "numpy", "=1.*", ""),
        ("numpy 1.26", "numpy", "==1.26", ""),
        ("python 3.12.*", "python", "=3.12.*", ""),
        ("numpy *", "numpy", "", ""),
        ("numpy=1.26=py312_0", "numpy", "==1.26", "py312_0"),
        ("numpy==1.26=py312_0", "numpy", "==1.26", "py312_0"),
        ("numpy 1.26 py312_0", "numpy", "==1.26", "py312_0"),
        ("numpy >=1.26 py312_0", "numpy", ">=1.26", "py312_0"),
        ("numpy>=1.26=py312_0", "numpy", ">=1.26", "py312_0"),
        ("pytorch=*=*cuda*", "pytorch", "", "*cuda*"),
        ("pytorch=2.5.*=cuda126*", "pytorch", "=2.5.*", "cuda126*"),
        ("numpy>=1.2,<2", "numpy", ">=1.2,<2", ""),
        ("numpy >= 1.2 , < 2", "numpy", ">=1.2,<2", ""),
        ("numpy!=1.3", "numpy", "!=1.3", ""),
        ("numpy~=1.3", "numpy", "~=1.3", ""),
        ("numpy=1.2|1.3", "numpy", "=1.2|==1.3", ""),
        ("numpy>=1.2,<1.3|>=1.4", "numpy", ">=1.2,<1.3|>=1.4", ""),
        ("x264=1!164.3095", "x264", "=1!164.3095", ""),
        ("x264>=1!164.3095", "x264", ">=1!164.3095", ""),
        ("tzdata=2024b", "tzdata", "=2024b", ""),
        ("torch==2.6.0+rocm6.2.4", "torch", "==2.6.0+rocm6.2.4", ""),
        ("numpy=1.26  # pinned [linux]", "numpy", "=1.26", ""),
    ],
)
def test_name_version_build(text: str, name: str, version: str, build: str) -> None:
    spec = parse(text)
    assert (spec.name, spec.version, spec.build, spec.channel, spec.line) == (name, version, build, "", 7)


@rows(
    ("text", "written", "channel"),
    [
        ("conda-forge::numpy=1.26", "conda-forge::numpy=1.26", "conda-forge"),
        ("pytorch/label/nightly::numpy", "pytorch/label/nightly::numpy", "pytorch/label/nightly"),
        ("conda-forge/linux-64::numpy", "conda-forge/linux-64::numpy", "conda-forge/linux-64"),
        ("https://example.org/stable::numpy", "https://example.org/stable::numpy", "https://example.org/stable"),
        ("numpy[channel=conda-forge]", "conda-forge::numpy", "conda-forge"),
        ("numpy[version='>=1.2, <2',build=py*]", "numpy >=1.2,<2 py*", ""),
        ('numpy[ version = "1.2|>=1.3" , channel = pytorch ]', "pytorch::numpy ==1.2|>=1.3", "pytorch"),
        ("numpy[build=*_openblas]", "numpy * *_openblas", ""),
        ("numpy=1.26[build=py312_0]", "numpy =1.26.* py312_0", ""),
        ("numpy  =1.26", "numpy =1.26", ""),
        ("numpy >= 1.2 , < 2", "numpy >=1.2,<2", ""),
    ],
)
def test_text_is_what_conda_reads(text: str, written: str, channel: str) -> None:
    spec = parse(text)
    assert (spec.text, spec.channel, spec.name) == (written, channel, "numpy")
    again = parse(spec.text)
    assert (again.text, again.version, again.build) == (spec.text, spec.version, spec.build)


@pytest.mark.parametrize("suffix", ["", "#0123456789abcdef0123456789abcdef"])
def test_package_address(suffix: str) -> None:
    spec = parse(URL + suffix)
    assert (spec.name, spec.version, spec.build) == ("numpy", "==1.26.4", "py312heda63a1_0")
    assert spec.url == spec.text == URL + suffix
    assert parse(f"numpy[url={URL}]") == parse(URL)


@rows(
    "text",
    ["", "#", "=1", "numpy*", "num*py=1",
     "*", "numpy=", "numpy=1=", "numpy==", "numpy,", "numpy=1,", "numpy=,1", "numpy=1|", "numpy>1>2",
     "numpy;id", "numpy`id`", "$(id)", "numpy\\", "numpy{a}", "numpy'", "numpy=1'", "numpy\x00", "nümpy", "numpy=1.2é",
     "a b c", "numpy=1.26 py312 x", "numpy[", "numpy]", "[numpy]", "numpy[]", "numpy[version]", "numpy[version=1]x",
     "numpy[version='1']['2']", "numpy[version='1' build=2]", "numpy[url=https://example.org/scipy-1-0.conda]",
     "::numpy", "a b::numpy", "conda-forge:numpy", "a::b::", "numpy/../x", "../numpy.conda", "https://example.org/numpy",
     "https://example.org/numpy-1.conda", "https://u:p@example.org/numpy-1-0.conda", "numpy <script>", "numpy&&id",
     "numpy|id", "numpy\nid", "--hash=1", "numpy@1", "numpy%20", "numpy?x", "^numpy.*$"],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    (finding,) = caught.value.findings
    assert finding.at == AT
    assert finding.message
    assert finding.fix


@rows(
    "channel",
    [
        "conda-forge",
        "nodefaults",
        "pytorch/label/nightly",
        "https://example.org/a/b",
        "file:///data/channel",
        "a.b_c",
    ],
)
def test_channels(channel: str) -> None:
    check_channel(channel, at=AT)


@rows(
    "channel",
    ["", "a b", "a,b", "$X", "-c", "/abs", "../up", "https://a:b@example.org", "https://", "https://example.org/t/x/y",
     "s3://bucket", "https://example.org/$(id)", "https://example.org/a b", "a\nb", "https://[::1", "conda-forge/"],
)  # fmt: skip
def test_channels_refused(channel: str) -> None:
    with pytest.raises(ConfigError):
        check_channel(channel, at=AT)


@rows(
    "written",
    [
        "=3.15",
        "=3.16",
        ">=3.10,<4",
        ">=3.10,<3.99",
        "=3.*",
        ">=3.9,!=3.9.7",
        "<=3.11.99",
        ">=2.7,<3",
        ">3.12,<3.13",
        "~=3.11",
        "=3.12|=3.13",
    ],
)
def test_a_python_that_exists_is_taken(written: str) -> None:
    check_python(parse(f"python{written}"), at=AT)
