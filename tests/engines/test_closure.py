"""`recipe check --resolve` and `recipe lock` judge packages that no line names: uv itself, on real METADATA."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from lock_room import LockRoom
from tiny_index import torch_index, write_index

pytestmark = pytest.mark.engines

# Stand-ins: the real names and dependencies, and empty wheels. torch 2.15.0 is built for CUDA 13 alone.
ROWS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("torch", "2.15.0", ("nvidia-cublas==13.1",)),
    ("torch", "2.8.0", ("nvidia-cublas-cu12==12.8.4.1",)),
    ("nvidia-cublas", "13.1", ()),
    ("nvidia-cublas-cu12", "12.8.4.1", ()),
    ("filelock", "3.20.0", ()),
    ("hidden-torch", "1.0", ("torch>=2.5",)),
    ("newest-torch", "1.0", ("torch>=2.15",)),
)
ENV = "name: demo\ndependencies: [python=3.12, {pip: [hidden-torch==1.0]}]\n"
BASE = "docker://docker.io/library/python:3.12-slim-bookworm"


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    root = tmp_path_factory.mktemp("indexes")
    for token in ("rocm6.4", "cu126", "cu129", "cpu"):
        write_index(root / "whl" / token, torch_index(token))
    whl = f"{(root / 'whl').as_uri()}/{{token}}"
    return {"UV_DEFAULT_INDEX": write_index(root / "default", ROWS), "RECIPE_TORCH_INDEX": whl}


@pytest.fixture
def room(tmp_path: Path) -> LockRoom:
    return LockRoom(tmp_path)


def test_a_torch_that_no_line_names_is_the_build_of_the_site(room: LockRoom, indexes: Mapping[str, str]) -> None:
    file = room.write("environment.yml", ENV)
    sites, words = ("mn5", "frontier", "local"), ("--base", BASE, "--format", "json")
    plain = json.loads(room.recipe("check", *sites, file, *words, **indexes).out)
    assert [one["torch"] for one in plain["outcomes"]] == [None, None, None]  # the lists do not know the package
    found = json.loads(room.recipe("check", "--resolve", *sites, file, *words, **indexes).expect(0).out)
    assert [one["torch"] for one in found["outcomes"]] == ["2.8.0+cu129", "2.8.0+rocm6.4", "2.8.0+cpu"]
    for one in found["outcomes"]:
        assert "torch-brought" in [finding["code"] for finding in one["findings"]]


def test_what_needs_a_torch_that_no_driver_serves_is_refused(room: LockRoom, indexes: Mapping[str, str]) -> None:
    file = room.write("requirements.txt", "newest-torch==1.0\n")
    done = room.recipe("check", "--resolve", "lumi-g", file, "--base", BASE, **indexes).expect(3)
    assert "newest-torch requires torch: 'torch==2.15.0' cannot run on this site" in done.err
    assert "fix: remove newest-torch" in done.err


def test_a_lock_keeps_the_torch_that_no_line_names(room: LockRoom, indexes: Mapping[str, str]) -> None:
    file = room.write("environment.yml", ENV)
    room.recipe("lock", "frontier", file, "--base", BASE, **indexes).expect(0)
    lock = room.read("frontier", env=file)
    assert lock.asked.brought == ("torch==2.8.0",)
    assert {one.name: one.version for one in lock.pip}["torch"] == "2.8.0+rocm6.4"
    done = room.recipe("check", "--locked", "frontier", file, "--base", BASE, **indexes).expect(0)
    assert "2.8.0+rocm6.4" in done.out
    file.write_text(ENV.replace("hidden-torch==1.0", "filelock"))  # and is none of another recipe
    done = room.recipe("check", "frontier", file, "--base", BASE, **indexes).expect(0)
    assert "lock-stale" in done.err
    assert "rocm6.4" not in done.out


def test_an_index_that_does_not_answer_leaves_the_lists(room: LockRoom) -> None:
    file = room.write("requirements.txt", "cupy-cuda12x\n")
    down = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}
    done = room.recipe("check", "--resolve", "local", file, "--base", BASE, **down).expect(0)
    assert "[not-looked-up]: the packages were judged by name, not looked up" in done.err


def test_a_torch_index_that_does_not_answer_hides_nothing(room: LockRoom, indexes: Mapping[str, str]) -> None:
    down = {**indexes, "RECIPE_TORCH_INDEX": "http://127.0.0.1:9/{token}", "UV_HTTP_RETRIES": "0"}
    file = room.write("requirements.txt", "torch==2.8.0\nfilelock==99\n")
    for words in (("check", "--resolve"), ("lock",)):
        done = room.recipe(*words, "local", file, "--base", BASE, **down).expect(3)
        assert "error[no-package]: there is no 'filelock==99'" in done.err


@pytest.mark.parametrize("words", [("check", "--resolve"), ("lock",)], ids=lambda words: words[0])
def test_a_wrong_line_does_not_wait_for_torchs_index(
    words: tuple[str, ...], room: LockRoom, indexes: Mapping[str, str], tmp_path: Path
) -> None:
    """The line is for another Python: that index is not asked at all."""
    index = write_index(tmp_path / "default", (("later", "1.0", ()),))
    page = tmp_path / "default" / "later" / "index.html"
    page.write_text(page.read_text().replace("<a ", '<a data-requires-python="&gt;=3.13" '))
    file = room.write("requirements.txt", "torch==2.8.0\nlater==1.0\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/{{token}}"
        settings = {**indexes, "UV_DEFAULT_INDEX": index, "RECIPE_TORCH_INDEX": address}
        done = room.recipe(*words, "local", file, "--base", BASE, **settings).expect(3)
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()
    assert "error[no-wheel]: 'later==1.0' requires Python >=3.13, and the environment has 3.12" in done.err


@pytest.mark.parametrize(
    ("package", "brings", "user"),
    [("jaxopt==0.8.5", "jax", "jaxopt"), ("tensorflow-hub==0.16.1", "tensorflow", "tf-keras")],
)
def test_users_of_jax_and_tensorflow_on_the_default_index(package: str, brings: str, user: str, room: LockRoom) -> None:
    """The real index; what these packages require has no GPU in it."""
    file = room.write("requirements.txt", f"{package}\n")
    done = room.recipe("check", "--resolve", "mn5", file).expect(3)
    assert f"error[default-wheel]: '{brings}==" in done.err
    assert f"(required by {user}" in done.err


def test_a_package_that_would_not_use_this_torch(room: LockRoom, indexes: Mapping[str, str], tmp_path: Path) -> None:
    """As transformers 5: it requires torch by an extra alone, and switches an older one off."""
    rows = (("filelock", "3.20.0", ()), ("formers", "5.0", ("torch>=2.8; extra == 'torch'",)))
    own = {**indexes, "UV_DEFAULT_INDEX": write_index(tmp_path / "default", rows)}
    file = room.write("requirements.txt", "torch==2.3.0\nformers\n")
    done = room.recipe("check", "--resolve", "mn5", file, **own).expect(0)
    assert "warning[torch-pin]: 'formers' uses torch>=2.8, by its extra 'torch': on 'mn5' torch is 2.3.0a0" in done.err
    file.write_text("torch==2.8.0\nformers\n")  # NGC's 2.8.0a0 is taken for 2.8.0
    assert "torch-pin" not in room.recipe("check", "--resolve", "mn5", file, **own).expect(0).err
