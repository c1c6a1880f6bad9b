"""Images from locks, with Apptainer itself: exactly the locked files on exactly the locked base, or no image."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from recipe_program import EXAMPLE, TORCH, Room, inside, labels
from stand_ins.images import docker, small_debian
from tiny_index import write_index, write_wheel

from builder.model.lock import Lock
from builder.parse.lock_files import name_site_folder, read_lock
from builder.parse.recipe import name_index

pytestmark = pytest.mark.engines

ENV = """
    name: demo
    dependencies:
      - pip: [tool-stub]
    container: {smoke: {imports: [tool_stub]}}
"""
PACKAGES = (("tool-stub", "1.0", ("other-stub",)), ("other-stub", "2.0", ()))


def lock_of(env: Path, site: str = "local") -> Lock:
    lock = read_lock(name_index(env), site)
    assert lock is not None
    return lock


def test_an_image_has_what_was_locked_or_is_not_made(room: Room, base_sif: Path) -> None:
    index = write_index(room.folder / "index", PACKAGES)
    env = room.write("demo.yml", ENV)
    base = room.folder / "base.sif"
    shutil.copy(base_sif, base)
    words = (env, "--base", base)
    settings = {"UV_DEFAULT_INDEX": index}
    room.recipe("build", "local", *words, "--locked", "-o", "x.sif", **settings).expect(3)

    done = room.recipe("lock", "local", *words, **settings).expect(0)
    assert "base image sha256:" in done.err
    lock = lock_of(env)
    assert lock.base.digest == f"sha256:{hashlib.sha256(base.read_bytes()).hexdigest()}"
    assert lock.base.python.startswith("3.11")  # the image was asked
    assert lock.base.glibc == "2.36"
    assert {file.name: file.version for file in lock.pip} == {"tool-stub": "1.0", "other-stub": "2.0"}

    # A newer release is there by the time of the build.
    newer = write_wheel(room.folder / "index" / "tool-stub", "tool-stub", "1.1", (), origin="newer")
    page = newer.with_name("index.html")
    page.write_text(page.read_text().replace("</body>", f'<a href="{newer.name}">{newer.name}</a></body>'))
    room.recipe("build", "local", *words, "--locked", "-o", "x.sif", **settings).expect(0)
    image = room.folder / "x.sif"
    assert labels(image)["recipe.lock"] == lock.digest
    assert inside(image, "python3", "-c", "import tool_stub; print(tool_stub.__version__)").strip() == "1.0"
    again = room.recipe("build", "local", *words, "--locked", "-o", "x.sif", **settings).expect(0)
    assert "nothing to do" in again.err

    # A wheel of the same name and version that is not the locked one; the cache of the build still has that.
    write_wheel(room.folder / "index" / "other-stub", "other-stub", "2.0", (), origin="somebody else's")
    fresh = {**settings, "RECIPE_CACHE_DIR": str(room.folder / "fresh")}
    swapped = room.recipe("build", "local", *words, "-o", "y.sif", **fresh).expect(5)
    assert "does not have the digest that is required" in swapped.err
    assert not (room.folder / "y.sif").exists()

    # A base image that has changed under its name: the same size, another byte.
    content = bytearray(base.read_bytes())
    content[-1] ^= 1
    base.write_bytes(content)
    said = "is stale; changed: the base image: its file has another content"
    for line in (("lock", "--check"), ("build", "--locked", "-o", "z.sif"), ("check", "--locked")):
        assert said in room.recipe(*line, "local", *words, **settings).expect(3).err.replace("\n  ", " ")
    assert not (room.folder / "z.sif").exists()
    assert not room.left_behind()


def test_an_image_of_a_registry_is_locked_by_its_digest(room: Room, registry: str, base_tar: Path) -> None:
    """The registry is asked for the digest, and Apptainer is given it in the place of the tag."""
    name = f"{registry}/lock-test:{uuid4().hex[:8]}"  # the registry keeps what earlier runs pushed
    env = room.write("demo.yml", "dependencies: [python=3.11, {pip: [tool-stub]}]\n")
    settings = {"UV_DEFAULT_INDEX": write_index(room.folder / "index", PACKAGES)}
    words = ("local", env, "--base", f"docker://{name}")
    unknown = room.recipe("lock", *words, **settings).expect(0)
    assert "is locked by its name alone: the registry answered 404" in unknown.err
    assert lock_of(env).base.why == "the registry answered 404"
    docker("tag", small_debian(base_tar), name)
    try:
        pushed = docker("push", name)
    finally:
        docker("rmi", name)
    room.recipe("lock", *words, **settings).expect(0)
    digest = lock_of(env).base.digest
    assert f"digest: {digest}" in pushed
    plan = room.recipe("plan", *words, "--backend", "apptainer", "--locked", "--print", "def", **settings).expect(0).out
    assert f"From: {registry}/lock-test@{digest}\n" in plan


def test_what_a_local_base_image_has_is_asked_of_it(room: Room, base_sif: Path) -> None:
    """Packages of the image's own Python are resolved against, and no file is locked for them.

    The torch that the site claims for the image is a stand-in: packages go only into images that bring one.
    """
    site = room.site(
        "own",
        f"""
        extends: local
        title: an image of one's own
        base_images:
          - reference: {base_sif}
            source: [own]
            provides: {{torch: 2.8.0}}
        """,
    )
    env = room.write("demo.yml", "dependencies: [{pip: [tool-stub, 'needs-pip']}]\ncontainer: {python: base}\n")
    index = write_index(room.folder / "index", (*PACKAGES, ("needs-pip", "1.0", ("pip>=20",)), ("pip", "99.0", ())))
    done = room.recipe("lock", site, env, UV_DEFAULT_INDEX=index).expect(0)
    lock = lock_of(env, site)
    assert {file.name for file in lock.pip} == {"tool-stub", "other-stub", "needs-pip"}
    asked = inside(base_sif, "python3", "-c", "from importlib.metadata import version; print(version('pip'))").strip()
    assert lock.base.provides["pip"] == asked
    assert "may be replaced" not in done.err
    old = room.write("old.yml", "dependencies: [{pip: [too-new]}]\ncontainer: {python: base}\n")
    more = write_index(room.folder / "more", (("too-new", "1.0", ("pip>=98",)), ("pip", "99.0", ())))
    refused = room.recipe("lock", site, old, UV_DEFAULT_INDEX=more).expect(3)
    assert "pip" in refused.err


def test_torch_is_locked_to_the_wheel_of_this_machine(room: Room, base_sif: Path) -> None:
    """The example recipe with real torch: the wheel that pip's own settings find, its dependencies from the index."""
    env = room.write("digits.yml", EXAMPLE.read_text())
    room.recipe("lock", "local", env, "--base", base_sif).expect(0)
    lock = lock_of(env)
    torch = next(file for file in lock.pip if file.name == "torch")
    assert torch.version.partition("+")[0] == TORCH
    assert torch.torch
    assert {"sympy", "filelock", "numpy"} <= {file.name for file in lock.pip}
    assert all(file.kind == "wheel" and len(file.sha256) == 64 for file in lock.pip)
    first = {path: path.read_bytes() for path in name_site_folder(name_index(env), "local").iterdir()}
    room.recipe("lock", "--offline", "local", env, "--base", base_sif).expect(0)
    assert {path: path.read_bytes() for path in first} == first
