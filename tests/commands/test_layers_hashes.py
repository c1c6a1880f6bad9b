"""The digests that a recipe gives: they decide which files are installed, and without one that fits none is."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.rows import rows

from builder.layers.uv import make_uv_settings, require_uv
from builder.layers.wheels import Pin, Resolver, apply_hashes, list_given, parse_pins, resolve
from builder.sif.errors import LayeringError

ONE, TWO, LONG = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}", f"sha512:{'3' * 128}"
WHEEL = "https://h.example/six-1.16.0-py2.py3-none-any.whl"


def make_resolver(folder: Path) -> Resolver:
    """The real uv, with the wheels of a folder as its only index."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "UV_OFFLINE": "1", "UV_FIND_LINKS": str(folder)}
    settings = make_uv_settings(environment, cache=folder / "cache")
    work = folder / "work"
    work.mkdir()
    return Resolver(uv=require_uv(), minor="3.11", platform="x86_64-manylinux_2_28", work=work, environment=settings)


def write_wheel(folder: Path, name: str, *requires: str) -> str:
    """Write a wheel and return its digest."""
    info, path = f"{name}-1.0.dist-info", folder / f"{name}-1.0-py3-none-any.whl"
    texts = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        + "".join(f"Requires-Dist: {other}\n" for other in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    texts[f"{info}/RECORD"] = "".join(f"{one},,\n" for one in [*texts, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in texts.items():
            archive.writestr(inside, text)
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def write_sdist(folder: Path, name: str) -> str:
    """Write an sdist and return its digest."""
    path = folder / f"{name}-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        text = f"Metadata-Version: 2.2\nName: {name}\nVersion: 1.0\n".encode()
        member = tarfile.TarInfo(f"{name}-1.0/PKG-INFO")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def pins(text: str) -> tuple[Pin, ...]:
    return parse_pins(text)


@rows(
    ("given", "found", "kept"),
    [
        (f"six==1.16.0 --hash={ONE}", f"six==1.16.0 --hash={ONE} --hash={TWO}", (ONE,)),
        (f"six>=1 --hash={ONE} --hash={TWO}", f"six==1.16.0 --hash={ONE} --hash={TWO}", (ONE, TWO)),
        (f"six==1.16.0 --hash={LONG}", f"six==1.16.0 --hash={ONE}", (LONG,)),
        (f"{WHEEL} --hash={ONE}", f"six @ {WHEEL} --hash={ONE}", (ONE,)),
        ("six==1.16.0", f"six==1.16.0 --hash={ONE}", (ONE,)),
    ],
)
def test_only_files_with_a_given_digest_are_taken(
    tmp_path: Path, given: str, found: str, kept: tuple[str, ...]
) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"{given}\n")
    (pin,) = apply_hashes(pins(found), given=list_given([file]))
    assert pin.hashes == kept
    assert all(f"--hash={value}" in pin.text for value in kept)
    assert pin.text.count("--hash=") == len(kept)


@rows(
    ("given", "found"),
    [
        (f"six==1.16.0 --hash={TWO}", f"six==1.16.0 --hash={ONE}"),
        (f"{WHEEL} --hash={TWO}", f"six @ {WHEEL} --hash={ONE}"),
    ],
)
def test_another_digest_is_refused_with_both(tmp_path: Path, given: str, found: str) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"{given}\n")
    with pytest.raises(LayeringError, match="'six") as caught:
        apply_hashes(pins(found), given=list_given([file]))
    assert f"{TWO} given, {ONE} found" in str(caught.value)
    assert "'six'" in caught.value.fix


def test_a_digest_of_another_file_ends_a_build(tmp_path: Path) -> None:
    right = write_wheel(tmp_path, "own")
    (tmp_path / "requirements.txt").write_text(f"--no-index\nown==1.0 --hash={TWO}\n")
    with pytest.raises(LayeringError, match=f"{TWO} given, {right} found"):
        resolve(tmp_path, make_resolver(tmp_path))


@pytest.mark.parametrize("flag", ["", "--require-hashes\n"])
def test_one_hash_makes_hashes_mandatory(tmp_path: Path, flag: str) -> None:
    write_wheel(tmp_path, "dep")
    right = write_wheel(tmp_path, "own", "dep")
    (tmp_path / "requirements.txt").write_text(f"--no-index\n{flag}own==1.0 --hash={right}\n")
    with pytest.raises(LayeringError, match="required have none: dep") as caught:
        resolve(tmp_path, make_resolver(tmp_path))
    assert "--generate-hashes" in caught.value.fix


def test_what_a_torch_requires_needs_no_hash(tmp_path: Path) -> None:
    write_wheel(tmp_path, "dep")
    write_wheel(tmp_path, "torch", "dep")
    right = write_wheel(tmp_path, "own")
    (tmp_path / "requirements-torch.txt").write_text("torch==1.0\n")
    (tmp_path / "requirements.txt").write_text(f"--no-index\nown==1.0 --hash={right}\n")
    groups, sources = resolve(tmp_path, make_resolver(tmp_path))
    assert not sources
    found = {pin.name: pin.hashes for group in groups for pin in group.pins}
    assert found["own"] == (right,)
    assert sorted(found) == ["dep", "own", "torch"]


@pytest.mark.parametrize("both", [True, False])
def test_the_digest_of_an_sdist_builds_it_in_the_image(tmp_path: Path, both: bool) -> None:
    wheel, sdist = write_wheel(tmp_path, "own"), write_sdist(tmp_path, "own")
    hashes = f"--hash={sdist} --hash={wheel}" if both else f"--hash={sdist}"
    page = tmp_path / "simple" / "own" / "index.html"
    page.parent.mkdir(parents=True)
    files = {"own-1.0-py3-none-any.whl": wheel, "own-1.0.tar.gz": sdist}
    links = (f'<a href="../../{name}#{digest.replace(":", "=")}">{name}</a>' for name, digest in files.items())
    page.write_text("<!DOCTYPE html><html><body>" + "".join(links) + "</body></html>")
    (tmp_path / "requirements.txt").write_text(f"--index-url file://{tmp_path}/simple\nown==1.0 {hashes}\n")
    resolver = make_resolver(tmp_path)
    resolver.environment = {name: value for name, value in resolver.environment.items() if name != "UV_FIND_LINKS"}
    groups, sources = resolve(tmp_path, resolver)
    assert sources is not both
    assert [pin.name for group in groups for pin in group.pins] == (["own"] if both else [])


@pytest.mark.parametrize("value", ["own", ":all:"])
def test_no_binary_is_built_in_the_image(tmp_path: Path, value: str) -> None:
    write_wheel(tmp_path, "own")
    (tmp_path / "requirements.txt").write_text(f"--no-index\n--no-binary {value}\nown==1.0\n")
    assert resolve(tmp_path, make_resolver(tmp_path)) == ((), True)
