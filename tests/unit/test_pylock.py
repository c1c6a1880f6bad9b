"""The lock of another tool as the environment file: a pylock.toml, and what uv makes of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run
from builder.model.finding import ConfigError
from builder.model.recipe import InputChoice, Recipe
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe, name_index
from builder.parse.site import load_site
from builder.pipeline.resolution import resolve_recipe

ONE, TWO, THREE, FOUR = ("1" * 64, "2" * 64, "3" * 64, "4" * 64)


def package(
    name: str, version: str, files: Mapping[str, str], *, marker: str = "", index: str = "https://index.example/simple"
) -> str:
    """A package of a pylock; `files` are names with their sha256."""
    entries = {
        name: f'{{ url = "https://files.example/{name}", hashes = {{ sha256 = "{digest}" }} }}'
        for name, digest in files.items()
    }
    wheels = ", ".join(entry for name, entry in entries.items() if name.endswith(".whl"))
    lines = ["[[packages]]", f'name = "{name}"', f'version = "{version}"', f"wheels = [{wheels}]"]
    lines += [f"sdist = {entry}" for name, entry in entries.items() if name.endswith(".tar.gz")]
    lines += [f"marker = {json.dumps(marker)}"] if marker else []
    lines += [f'index = "{index}"'] if index else []
    return "\n".join(lines) + "\n"


def pure(name: str, version: str, digest: str = ONE, **more: str) -> str:
    return package(name, version, {f"{name.replace('-', '_')}-{version}-py3-none-any.whl": digest}, **more)


HEAD = 'lock-version = "1.0"\ncreated-by = "other"\n'
TORCH = pure("torch", "2.8.0+cu126", TWO) + pure("triton", "3.4.0", THREE) + pure("nvidia-cublas-cu12", "12.6.4.1")


def load(folder: Path, text: str, name: str = "pylock.toml", **chosen: object) -> Recipe:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_recipe(path, choice=InputChoice(**chosen))  # type: ignore[arg-type]


def texts(recipe: Recipe) -> list[str]:
    return [line.text for line in recipe.pip]


def aim(recipe: Recipe, site: str = "local", *, base: str = "") -> Target:
    return resolve_recipe(load_site(site), recipe, context=Context(tool="recipe", base=base))


def test_every_package_keeps_its_version_and_hashes(tmp_path: Path) -> None:
    files = {"numpy-2.2.6-cp312-cp312-manylinux_2_17_x86_64.whl": ONE, "numpy-2.2.6.tar.gz": TWO}
    windows = {"numpy-2.2.6-cp312-cp312-win_amd64.whl": THREE}
    recipe = load(tmp_path, f"{HEAD}{package('numpy', '2.2.6', files | windows)}{pure('six', '1.16.0', FOUR)}")
    assert texts(recipe) == [
        f"numpy==2.2.6 --hash=sha256:{ONE} --hash=sha256:{TWO}", f"six==1.16.0 --hash=sha256:{FOUR}",
    ]  # fmt: skip
    assert (recipe.kind, [line.line for line in recipe.pip]) == ("lock", [3, 9])
    assert recipe.container.python == "env"
    planned = aim(recipe).environment
    assert list(planned.pip_lines) == texts(recipe)
    assert planned.pip_options == ("--require-hashes",)


def test_torch_keeps_its_release_and_no_index_of_its_own(tmp_path: Path) -> None:
    mine = pure("six", "1.16.0")
    index = "https://download.pytorch.org/whl/cu126"
    recipe = load(tmp_path, HEAD + mine + pure("torch", "2.8.0+cu126", TWO, index=index))
    assert texts(recipe)[1] == f"torch==2.8.0 --hash=sha256:{TWO}"
    assert recipe.pip_options.extra_index_urls == ()


@rows(
    ("marker", "kept"),
    [
        ("sys_platform == 'win32'", None),
        ("sys_platform == 'linux'", ""),
        ("platform_machine == 'x86_64'", ' ; platform_machine == "x86_64"'),
        ("python_full_version < '3.12'", ' ; python_full_version < "3.12"'),
        ("'plots' in extras", None),
        ("'all' in extras and sys_platform == 'linux'", ""),
        ("'test' not in dependency_groups or 'test' in dependency_groups", ""),
        ("'test' in dependency_groups and 'all' in extras", None),
    ],
)
def test_markers_are_decided_for_linux_and_what_was_chosen(tmp_path: Path, marker: str, kept: str | None) -> None:
    text = f'extras = ["all", "plots"]\n{HEAD}{pure("six", "1.16.0")}{pure("idna", "3.10", TWO, marker=marker)}'
    found = texts(load(tmp_path, text, extras=("all",)))[1:]
    assert found == ([] if kept is None else [f"idna==3.10{kept} --hash=sha256:{TWO}"])


def test_the_index_of_a_few_packages_is_asked_too(tmp_path: Path) -> None:
    own = pure("own", "1.0", index="https://own.example/simple")
    recipe = load(tmp_path, HEAD + pure("six", "1.16.0") + pure("idna", "3.10") + own)
    assert recipe.pip_options.extra_index_urls == ("https://own.example/simple",)


@rows(
    ("tags", "python"),
    [
        (("cp312-cp312-manylinux_2_17_x86_64",), "python>=3.12,<3.13"),
        (("cp311-cp311-manylinux_2_17_x86_64", "cp312-cp312-manylinux_2_17_x86_64"), "python>=3.11,<3.13"),
        (("cp39-abi3-manylinux_2_17_x86_64",), ""),
        (("py3-none-any",), ""),
    ],
)
def test_the_python_is_that_of_the_files(tmp_path: Path, tags: tuple[str, ...], python: str) -> None:
    files = {f"numpy-2.2.6-{tag}.whl": ONE for tag in tags}
    recipe = load(tmp_path, f"{HEAD}{package('numpy', '2.2.6', files)}{pure('six', '1.16.0')}")
    assert [spec.text for spec in recipe.conda] == ([python] if python else [])


def test_a_lock_says_its_python_and_container_itself(tmp_path: Path) -> None:
    own = '[tool.recipe]\npython = "base"\nenv = { A = "b" }\n'
    recipe = load(tmp_path, f'requires-python = ">=3.10"\n{HEAD}{pure("six", "1.16.0")}{own}', name="pylock.gpu.toml")
    assert (recipe.name, recipe.conda[0].text) == ("gpu", "python>=3.10")
    assert (recipe.container.python, dict(recipe.container.env)) == ("base", {"A": "b"})


def test_the_torch_of_a_lock_becomes_the_sites(tmp_path: Path) -> None:
    recipe = load(tmp_path, HEAD + TORCH + pure("six", "1.16.0"))
    for site, build in (("lumi-g", "2.8.0+rocm6.4"), ("local", "2.8.0+cpu")):
        target = aim(recipe, site)
        assert target.environment.torch_lines == (f"torch=={build}",)
        assert list(target.environment.pip_lines) == [f"six==1.16.0 --hash=sha256:{ONE}"]
        (note,) = [finding for finding in target.findings if finding.code == "lock-torch"]
        assert note.level == "note"
        assert f"torch 2.8.0 of the lock is replaced by this site's build, torch {build}" in note.message
        assert "and 2 packages that belong to it: every other package keeps its version and hash" in note.message


def test_a_lock_without_torch_keeps_the_cuda_libraries(tmp_path: Path) -> None:
    recipe = load(tmp_path, HEAD + pure("nvidia-cublas-cu12", "12.6.4.1"))
    assert list(aim(recipe, "mn5").environment.pip_lines) == texts(recipe)


@rows(
    ("site", "tag", "message"),
    [
        ("local", "cp312-cp312-macosx_11_0_arm64", "has no file for Python 3.12 on x86_64 with glibc 2.36"),
        ("local", "cp312-cp312-manylinux_2_39_x86_64", "has no file for Python 3.12 on x86_64 with glibc 2.36"),
        ("jupiter", "cp312-cp312-manylinux_2_17_x86_64", "has no file for Python 3.12 on aarch64"),
    ],
)
def test_a_package_without_a_file_for_the_site_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], site: str, tag: str, message: str
) -> None:
    load(tmp_path, HEAD + package("numpy", "2.2.6", {f"numpy-2.2.6-{tag}.whl": ONE}))
    assert run(["check", site, str(tmp_path / "pylock.toml")]) == 3
    shown = " ".join(capsys.readouterr().err.split())
    assert "error[lock-no-file]: 'numpy==2.2.6'" in shown
    assert message in shown


def test_a_lock_for_another_python_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f'requires-python = "==3.11.*"\n{HEAD}'
    load(tmp_path, text + package("numpy", "2.2.6", {"numpy-2.2.6-cp312-cp312-manylinux_2_17_x86_64.whl": ONE}))
    assert run(["check", "local", str(tmp_path / "pylock.toml")]) == 3
    assert "has no file for Python 3.11" in " ".join(capsys.readouterr().err.split())


def test_a_lock_for_other_processors_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"environments = [\"platform_machine == 'x86_64'\"]\n{HEAD}{pure('six', '1.16.0')}"
    load(tmp_path, text)
    assert run(["check", "jupiter", str(tmp_path / "pylock.toml")]) == 3
    assert "error[lock-platform]: the lock is for x86_64, and 'jupiter' has aarch64" in capsys.readouterr().err
    assert run(["check", "local", str(tmp_path / "pylock.toml")]) == 0


def test_nothing_is_planned_without_the_hashes_of_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load(tmp_path, HEAD + TORCH)
    file = str(tmp_path / "pylock.toml")
    assert run(["check", "lumi-g", file]) == 0
    capsys.readouterr()
    assert run(["plan", "lumi-g", file, "-o", str(tmp_path / "x.plan")]) == 3
    shown = " ".join(capsys.readouterr().err.split())
    assert f"error[lock-missing]: '{file}' has no hash for torch==2.8.0+rocm6.4, the build for 'lumi-g'" in shown
    assert f"fix: run `recipe lock lumi-g {file}`, which finds it" in shown
    assert not (tmp_path / "x.plan").exists()


def test_a_lock_without_torch_is_planned_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load(tmp_path, HEAD + pure("six", "1.16.0"))
    assert run(["plan", "local", str(tmp_path / "pylock.toml"), "-o", str(tmp_path / "x.plan")]) == 0
    capsys.readouterr()
    found = (tmp_path / "x.plan").rglob("requirements.txt")
    assert [path.read_text() for path in found] == [f"--require-hashes\nsix==1.16.0 --hash=sha256:{ONE}\n"]


def test_a_uv_lock_is_read_as_uv_exports_it(tmp_path: Path) -> None:
    path = tmp_path / "uv.lock"
    path.write_text('version = 1\n\n[[package]]\nname = "six"\nversion = "1.16.0"\n')
    recipe = load_recipe(path, choice=InputChoice(exports={str(path): HEAD + pure("six", "1.16.0")}))
    assert [(line.text, line.line) for line in recipe.pip] == [(f"six==1.16.0 --hash=sha256:{ONE}", 4)]
    with pytest.raises(ConfigError) as caught:
        load_recipe(path)
    assert "uv export --format pylock.toml" in caught.value.findings[0].fix


@rows(
    ("name", "index"),
    [
        ("uv.lock", "uv-lock.lock.yml"),
        ("pylock.toml", "pylock.lock.yml"),
        ("pylock.gpu.toml", "pylock.gpu.lock.yml"),
        ("environment.yml", "environment.lock.yml"),
    ],
)
def test_the_lock_of_a_lock_has_a_name_of_its_own(name: str, index: str) -> None:
    assert name_index(Path("a") / name) == Path("a") / index
