"""Locks of conda packages by other tools as the environment file: conda-lock, pixi, and lists of addresses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run
from builder.layers.conda_solver import CondaPackage
from builder.lock.forms import write_form
from builder.model.lock import BaseLock, Lock, LockRequest, PipFile
from builder.model.recipe import InputChoice, Recipe
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.pipeline.resolution import resolve_recipe
from builder.resolve.locked import list_other_conda

MD5, SHA = "5" * 32, "4" * 64
FORGE = "https://conda.anaconda.org/conda-forge"
PYTHON, NUMPY = f"{FORGE}/linux-64/python-3.12.4-h0_cpython.conda", f"{FORGE}/linux-64/numpy-1.26.4-py312h_0.conda"
TZ, OTHER = f"{FORGE}/noarch/tzdata-2026a-h0.conda", "https://conda.example/own/linux-64/tool-1.0-0.tar.bz2"
WHEEL = "https://files.example/six-1.16.0-py2.py3-none-any.whl"
TEXTS = ["python=3.12.4=h0_cpython", "numpy=1.26.4=py312h_0", "tzdata=2026a=h0"]


def write_explicit(urls: Iterable[str], *, mark: str = f"#{MD5}") -> str:
    return "# platform: linux-64\n@EXPLICIT\n" + "".join(f"{url}{mark}\n" for url in urls)


def write_conda_lock(*packages: tuple[str, str, str, str], more: str = "") -> str:
    """Packages by name, version, manager and address; noarch ones are listed for each platform."""
    text = "version: 1\nmetadata: {platforms: [linux-64]}\npackage:\n"
    for name, version, manager, url in packages:
        text += f"- {{name: {name}, version: '{version}', manager: {manager}, platform: linux-64, url: '{url}', "
        text += f"dependencies: {{}}, hash: {{md5: {MD5}, sha256: {SHA}}}, category: main, optional: false}}\n"
    return text + more


def write_pixi(urls: Iterable[str], *, version: int = 6, pypi: str = "") -> str:
    text = f"version: {version}\nenvironments:\n  default:\n    packages:\n      linux-64:\n"
    text += "".join(f"      - conda: {url}\n" for url in urls) + (f"      - pypi: {pypi}\n" if pypi else "")
    text += "      - pypi: ./\npackages:\n"
    text += "".join(f"- conda: {url}\n  sha256: {SHA}\n  md5: {MD5}\n" for url in urls)
    return text + (f"- pypi: {pypi}\n  name: six\n  version: 1.16.0\n  sha256: {SHA}\n" if pypi else "")


LOCKED = (("python", "3.12.4", "conda", PYTHON), ("numpy", "1.26.4", "conda", NUMPY), ("tzdata", "2026a", "conda", TZ))
SIX = ("six", "1.16.0", "pip", WHEEL)


def load(folder: Path, name: str, text: str, **chosen: object) -> Recipe:
    (folder / name).write_text(text, encoding="utf-8")
    return load_recipe(folder / name, choice=InputChoice(**chosen))  # type: ignore[arg-type]


def aim(recipe: Recipe, site: str = "local") -> Target:
    return resolve_recipe(load_site(site), recipe, context=Context(tool="recipe"))


@rows(
    ("name", "text", "hashes"),
    [
        ("conda-linux-64.lock", write_explicit((PYTHON, NUMPY, TZ)), (f"md5:{MD5}",)),
        ("explicit.txt", write_explicit((PYTHON, NUMPY, TZ), mark=f"#sha256:{SHA}"), (f"sha256:{SHA}",)),
        ("explicit.txt", write_explicit((PYTHON, NUMPY, TZ), mark=f"#{SHA}"), (f"sha256:{SHA}",)),
        ("conda-lock.yml", write_conda_lock(*LOCKED), (f"md5:{MD5}", f"sha256:{SHA}")),
        ("gpu.conda-lock.yml", write_conda_lock(*LOCKED), (f"md5:{MD5}", f"sha256:{SHA}")),
        ("pixi.lock", write_pixi((PYTHON, NUMPY, TZ)), (f"md5:{MD5}", f"sha256:{SHA}")),
        ("pixi.lock", write_pixi((PYTHON, NUMPY, TZ), version=7), (f"md5:{MD5}", f"sha256:{SHA}")),
    ],
)
def test_every_package_keeps_its_build_and_hash(tmp_path: Path, name: str, text: str, hashes: tuple[str, ...]) -> None:
    recipe = load(tmp_path, name, text)
    assert [spec.text for spec in recipe.conda] == TEXTS
    assert {tuple(sorted(spec.hashes)) for spec in recipe.conda} == {hashes}
    assert (recipe.kind, recipe.channels, recipe.processors) == ("lock", ("conda-forge",), ("x86_64",))
    environment = aim(recipe).environment
    assert (environment.place, list(environment.conda), environment.python) == ("conda", TEXTS, "3.12")


@rows(
    ("name", "text"),
    [
        ("conda-lock.yml", write_conda_lock(*LOCKED, SIX)),
        ("pixi.lock", write_pixi((PYTHON, NUMPY, TZ), pypi=WHEEL)),
    ],
)
def test_packages_of_pip_keep_version_and_hash(tmp_path: Path, name: str, text: str) -> None:
    recipe = load(tmp_path, name, text)
    assert [line.text for line in recipe.pip] == [f"six==1.16.0 --hash=sha256:{SHA}"]
    assert recipe.pip_options.require_hashes


def test_a_package_of_a_second_channel_names_it(tmp_path: Path) -> None:
    recipe = load(tmp_path, "x.txt", write_explicit((PYTHON, NUMPY, OTHER)))
    assert recipe.channels == ("conda-forge", "https://conda.example/own")
    assert recipe.conda[2].text == "https://conda.example/own::tool=1.0=0"


def test_each_processor_has_its_own_packages(tmp_path: Path) -> None:
    other = PYTHON.replace("linux-64", "linux-aarch64").replace("h0_", "h9_")
    more = f"- {{name: python, version: 3.12.4, manager: conda, platform: linux-aarch64, url: '{other}', hash: "
    more += f"{{md5: {MD5}}}}}\n- {{name: python, version: 3.12.4, manager: conda, platform: osx-64, url: 'x'}}\n"
    recipe = load(tmp_path, "conda-lock.yml", write_conda_lock(*LOCKED, more=more))
    assert recipe.processors == ()
    assert [spec.text for spec in recipe.select_processor("x86_64").conda] == TEXTS
    assert [spec.text for spec in recipe.select_processor("aarch64").conda] == ["python=3.12.4=h9_cpython"]


def test_a_lock_for_another_processor_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load(tmp_path, "pixi.lock", write_pixi((PYTHON, NUMPY)))
    assert run(["check", "jupiter", str(tmp_path / "pixi.lock")]) == 3
    assert "error[lock-platform]: the lock is for x86_64, and 'jupiter' has aarch64" in capsys.readouterr().err


def test_other_categories_are_chosen_as_groups(tmp_path: Path) -> None:
    text = "\n".join(
        line.replace("category: main", "category: dev") if "name: numpy" in line else line
        for line in write_conda_lock(*LOCKED).splitlines()
    )
    assert [spec.name for spec in load(tmp_path, "conda-lock.yml", text).conda] == ["python", "tzdata"]
    assert len(load(tmp_path, "conda-lock.yml", text, groups=("dev",)).conda) == 3


def test_the_torch_of_conda_becomes_the_sites(tmp_path: Path) -> None:
    torch = f"{FORGE}/linux-64/pytorch-2.8.0-cuda126_py312_0.conda"
    parts = (f"{FORGE}/linux-64/pytorch-gpu-2.8.0-cuda126_0.conda", f"{FORGE}/linux-64/libtorch-2.8.0-cuda126_0.conda")
    target = aim(load(tmp_path, "x.txt", write_explicit((PYTHON, NUMPY, torch, *parts))), "lumi-g")
    assert target.environment.torch_lines == ("torch==2.8.0+rocm6.4",)
    assert list(target.environment.conda) == [*TEXTS[:2], "pip"]
    (note,) = [finding for finding in target.findings if finding.code == "lock-torch"]
    assert "pytorch 2.8.0" in note.message
    assert "torch 2.8.0+rocm6.4, and" in note.message


def test_nothing_is_planned_where_no_hash_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load(tmp_path, "pixi.lock", write_pixi((PYTHON, NUMPY)))
    file = str(tmp_path / "pixi.lock")
    assert run(["check", "local", file]) == 0
    capsys.readouterr()
    assert run(["plan", "local", file, "-o", str(tmp_path / "x.plan")]) == 3
    shown = " ".join(capsys.readouterr().err.split())
    assert "says which files of conda are installed, and conda's solver compares no hashes" in shown
    assert f"fix: run `recipe lock local {file}`, which finds these very files" in shown
    assert not (tmp_path / "x.plan").exists()


@rows(
    ("sha256", "md5", "others"),
    [
        (SHA, MD5, []),
        (SHA, "", []),
        ("9" * 64, MD5, []),  # a list may have md5 alone
        ("9" * 64, "9" * 32, [f"'numpy': sha256:{SHA} given, sha256:{'9' * 64} found"]),
    ],
)
def test_another_file_than_the_locked_one_is_found(tmp_path: Path, sha256: str, md5: str, others: list[str]) -> None:
    target = aim(load(tmp_path, "conda-lock.yml", write_conda_lock(*LOCKED)))
    package = CondaPackage(
        name="numpy", version="1.26.4", build="py312h_0", subdir="linux-64", url=NUMPY, sha256=sha256, md5=md5
    )
    assert list_other_conda(target, [package, replace(package, name="brought")]) == others


def test_what_we_write_is_read_again(tmp_path: Path) -> None:
    package = CondaPackage(
        name="python", version="3.12.4", build="h0_cpython", subdir="linux-64", url=PYTHON, sha256=SHA, md5=MD5
    )
    asked = LockRequest(place="conda", arch="x86_64", base="docker://b.example/b:1", channels=("conda-forge",))
    lock = Lock(
        site="local", recipe="f" * 64, tool="recipe", asked=asked, base=BaseLock(reference="b"), conda=(package,),
        pip=(PipFile(name="six", version="1.16.0", kind="wheel", url=WHEEL, sha256=SHA),),
    )  # fmt: skip
    recipe = load(tmp_path, "conda-lock.yml", write_form(lock, form="conda-lock", file="e.yml"))
    assert [spec.text for spec in recipe.conda] == TEXTS[:1]
    assert [line.text for line in recipe.pip] == [f"six==1.16.0 --hash=sha256:{SHA}"]
    recipe = load(tmp_path, "e.txt", write_form(replace(lock, pip=()), form="explicit", file="e.yml"))
    assert [(spec.text, spec.hashes) for spec in recipe.conda] == [(TEXTS[0], (f"sha256:{SHA}",))]
