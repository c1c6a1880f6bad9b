"""The Python packages that conda packages are taken for, and that unsure names are never taken silently."""

from __future__ import annotations

from pathlib import Path

from support.rows import rows

from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.checks import run_checks
from builder.resolve.conda_names import find_python_name, is_unsure_name, load_name_table
from builder.resolve.resolve import resolve


def target(folder: Path, site: str, backend: str, *, conda: str, torch: str, python: str = "") -> Target:
    path = folder / "environment.yml"
    lines = ["name: x", "channels: [conda-forge]", "dependencies:", f"  - {conda}", f"  - pip: [torch=={torch}]"]
    path.write_text("\n".join([*lines, *([f"container: {{python: {python}}}"] if python else [])]) + "\n")
    return resolve(load_recipe(path), load_site(site), context=Context(backend=backend))  # type: ignore[arg-type]


def found(one: Target) -> list[str]:
    return [finding.message for finding in run_checks(one, obstacles=()) if finding.code == "base-name"]


@rows(
    ("site", "backend", "torch", "place"),
    [
        ("mn5", "docker", "2.3.0", "base"),
        ("dawn", "apptainer", "2.8.0", "base"),
        ("dawn", "layers", "2.8.0", "base"),
        ("lumi-g", "apptainer", "2.8.0", "conda"),
        ("lumi-g", "layers", "2.8.0", "conda"),
        ("lumi-g", "cotainr", "2.8.0", "conda"),
        ("lumi-g", "tykky", "2.8.0", "conda"),
    ],
)
def test_an_unsure_name_in_a_base_image_is_reported(
    site: str, backend: str, torch: str, place: str, tmp_path: Path
) -> None:
    for python in ("", "base") if place == "base" else ("",):
        one = target(tmp_path, site, backend, conda="ray=2.9", torch=torch, python=python)
        assert one.environment.place == place
        assert (one.environment.pip_lines == ("ray==2.9.*",)) is (place == "base")
        said = found(one)
        assert bool(said) is (place == "base")
        assert all(text.startswith("'ray=2.9' is installed as the Python package 'ray'") for text in said)
    sure = target(tmp_path, site, backend, conda="scipy=1.13", torch=torch)
    assert found(sure) == []


def test_unsure_names_are_names_of_the_table() -> None:
    table = load_name_table()
    known = {*table.same.split(), *table.renamed}
    assert set(table.unsure) <= known
    assert is_unsure_name("Faiss_CPU")
    assert not is_unsure_name("numpy")
    # An index has other packages under these names than conda has.
    assert find_python_name("umap") is None
    assert find_python_name("plotly-orca") is None
    assert not set(table.other) & known
