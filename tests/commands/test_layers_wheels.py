"""Wheels as uv unpacks them: one that is not whole, or is empty, is refused with its name and a fix."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.layers.uv import make_uv_settings, require_uv
from builder.layers.wheel_checks import check_requested, list_requested
from builder.layers.wheel_files import install_wheels
from builder.layers.wheels import Group, Resolver, parse_pins
from builder.sif.errors import LayeringError

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"


def write_wheel(folder: Path, files: Sequence[str], *, listed: Sequence[str] = (), metadata: str = "") -> None:
    """A wheel of `own 1.0` with these files, whose RECORD names more of them."""
    info = "own-1.0.dist-info"
    texts = dict.fromkeys(files, "") | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: own\nVersion: 1.0\n{metadata}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if "Top-Level" in metadata:
        texts[f"{info}/top_level.txt"] = "own\n"
    if f"{info}/LEFT-OUT" not in files:
        texts[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*texts, *listed, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / "own-1.0-py3-none-any.whl", "w") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)


def make_resolver(folder: Path) -> Resolver:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "UV_OFFLINE": "1", "UV_FIND_LINKS": str(folder)}
    settings = make_uv_settings(environment, cache=folder / "cache")
    return Resolver(uv=require_uv(), minor=MINOR, platform="x86_64-manylinux_2_28", work=folder, environment=settings)


def install(folder: Path, *, requested: Sequence[str]) -> Path:
    group = Group(title="packages", pins=parse_pins("own==1.0\n"), options=("--no-index",))
    return unpack(folder, make_resolver(folder), group, requested=requested)


def unpack(folder: Path, resolver: Resolver, group: Group, *, requested: Sequence[str] = ()) -> Path:
    return install_wheels(
        group, folder / "tree", resolver=resolver, minor=MINOR, number="1", online=lambda: None, requested=requested
    )


@pytest.mark.parametrize(
    ("files", "listed", "metadata", "requested"),
    [
        (["own/__init__.py", "own-1.0.data/scripts/tool", "own-1.0.data/data/share/x"], [], "", ["own"]),
        (["own/__init__.py"], ["own/", "own-1.0.dist-info/RECORD.jws", "own/__pycache__/a.cpython-311.pyc"], "", []),
        ([], [], "Requires-Dist: six\n", ["own"]),  # a package that only requires others
        ([], [], "", []),  # required by another one
    ],
)
def test_a_whole_wheel_is_taken(
    tmp_path: Path, files: list[str], listed: list[str], metadata: str, requested: list[str]
) -> None:
    write_wheel(tmp_path, files, listed=listed, metadata=metadata)
    assert (install(tmp_path, requested=requested) / "own-1.0.dist-info").is_dir()


@pytest.mark.parametrize(
    ("files", "listed", "metadata", "requested", "said"),
    [
        (["own/__init__.py"], ["own/core.py"], "", [], "names files that it lacks: 'own/core.py'"),
        (["own/__init__.py"], [f"own/{n}.so" for n in range(5)], "", [], "'own/0.so', 'own/1.so', 'own/2.so' and 2"),
        ([], [], "", ["own"], "is empty: it has no module and requires no other package"),
        ([], [], "Top-Level: own\n", [], "is empty"),
        (["own/__init__.py", "own-1.0.dist-info/LEFT-OUT"], [], "", [], "it has no RECORD, the list of its files"),
    ],
)
def test_a_wheel_that_is_not_whole_is_refused(
    tmp_path: Path, files: list[str], listed: list[str], metadata: str, requested: list[str], said: str
) -> None:
    write_wheel(tmp_path, files, listed=listed, metadata=metadata)
    for _ in range(2):  # the second time with the cache of the first
        with pytest.raises(LayeringError) as caught:
            install(tmp_path, requested=requested)
        shutil.rmtree(tmp_path / "tree", ignore_errors=True)
    assert str(caught.value).startswith("the wheel of 'own 1.0' is ")
    assert said in str(caught.value)
    assert "name another version of 'own'" in caught.value.fix


@pytest.mark.parametrize("inside", [True, False], ids=["zip", "record"])
@pytest.mark.parametrize("path", ["../../../outside", "own-1.0.data/data/../../../outside", "own/../../outside"])
def test_a_wheel_with_a_path_outside_its_folder_is_refused(tmp_path: Path, path: str, inside: bool) -> None:
    write_wheel(tmp_path, ["own/__init__.py", *([path] if inside else [])], listed=[] if inside else [path])
    with pytest.raises(LayeringError) as caught:
        install(tmp_path, requested=["own"])
    assert f"the wheel of 'own 1.0' names files outside its own folder: '{path}'" in str(caught.value)
    assert "name another version of 'own'" in caught.value.fix
    assert not list(tmp_path.rglob("outside"))


def test_a_wheel_that_was_unpacked_to_resolve_is_refused_as_well(tmp_path: Path) -> None:
    """uv unpacks a wheel of a folder into its cache when it reads what it requires, and corrects the RECORD there."""
    write_wheel(tmp_path, ["own/__init__.py", "../../../outside"])
    for number in range(2):  # the second time with the cache of the first
        resolver = make_resolver(tmp_path)
        (tmp_path / "own.in").write_text("own\n")
        (pin,) = resolver.make_cached_resolver(tmp_path / f"other-{number}").compile(
            [tmp_path / "own.in"], "--no-index"
        )
        with pytest.raises(LayeringError, match="names files outside its own folder"):
            unpack(tmp_path, resolver, Group(title="packages", pins=(pin,), options=("--no-index",)))
        shutil.rmtree(tmp_path / "tree")


def test_what_a_recipe_names_is_among_the_layers() -> None:
    text = "--index-url https://h\nSix>=1\nruamel_yaml[x]==1\nnot-here; python_version < '3'\n./own\nown.whl @ x\n"
    assert list_requested([text]) == {"six", "ruamel-yaml", "own-whl"}
    assert list_requested(["--require-hashes\nsix==1 --hash=sha256:aa\n"]) == set()
    check_requested({"six"}, present=["six", "torch"])
    with pytest.raises(LayeringError, match="these packages are not in the image: six") as caught:
        check_requested({"six", "torch"}, present=["torch"])
    assert caught.value.fix
