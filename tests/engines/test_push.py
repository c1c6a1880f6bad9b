"""`recipe push` to real registries, read back by Apptainer and by the list of what refers to the image."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from lock_room import LockRoom
from private_registry import WORD, log_in, serve_registry
from recipe_program import Built, Room, build, run

from builder.sif.bounded import hash_file

pytestmark = pytest.mark.engines

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


@pytest.fixture(scope="module")
def built(rooms: Callable[[str], Room], small_sif: Path) -> Built:
    room = LockRoom(rooms("push").folder)
    recipe = room.write("environment.yml", "dependencies: []\ncontainer: {env: {COLOUR: blue}}\n")
    return build(room, recipe, small_sif, "--no-smoke")


@pytest.fixture
def name(registry: str) -> str:
    return f"{registry}/push-test/{uuid4().hex[:8]}"  # the registry keeps what earlier runs pushed


def fetch(name: str, place: str, *, kind: str = MANIFEST) -> Any:
    host, _, path = name.partition("/")
    request = urllib.request.Request(f"http://{host}/v2/{path}/{place}", headers={"Accept": kind})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_what_was_pushed_is_pulled_and_its_papers_refer_to_it(built: Built, name: str) -> None:
    done = built.room.recipe("push", built.image, f"oras://{name}:1.0").expect(0)
    digest = done.out.strip().removeprefix(f"oras://{name}@")
    assert digest.startswith("sha256:")
    assert f"next: apptainer pull --no-https x.sif oras://{name}:1.0" in done.err
    for what in (f"{name}:1.0", f"{name}@{digest}"):
        pulled = built.room.folder / "pulled.sif"
        run(["apptainer", "pull", "--force", "--no-https", pulled, f"oras://{what}"]).expect(0)
        assert hash_file(pulled) == hash_file(built.image)
    # This registry keeps no list of referrers itself: it is under a tag, as the specification has it.
    listed = fetch(name, f"manifests/{digest.replace(':', '-')}", kind=INDEX)["manifests"]
    found = {}
    for one in listed:
        manifest = fetch(name, f"manifests/{one['digest']}")
        assert (manifest["subject"]["digest"], manifest["artifactType"]) == (digest, one["artifactType"])
        found[one["artifactType"]] = fetch(name, f"blobs/{manifest['layers'][0]['digest']}")
    bill, provenance = (
        json.loads(Path(f"{built.image}{end}").read_text()) for end in (".cdx.json", ".provenance.json")
    )
    assert found == {"application/vnd.cyclonedx+json": bill, "application/vnd.in-toto+json": provenance}
    again = built.room.recipe("push", built.image, f"oras://{name}:1.0").expect(0)
    assert "the registry has it already" in again.err
    assert fetch(name, f"manifests/{digest.replace(':', '-')}", kind=INDEX)["manifests"] == listed


def test_a_tag_is_moved_with_force_only(built: Built, name: str, small_sif: Path) -> None:
    first = built.room.recipe("push", built.image, f"{name}:1").expect(0).out
    other = built.room.recipe("push", small_sif, f"{name}:1").expect(2)
    assert f"error[output-exists]: 'oras://{name}:1' is another image already" in other.err
    assert built.room.recipe("push", built.image, f"{name}:1").expect(0).out == first
    moved = built.room.recipe("push", small_sif, f"{name}:1", "--force").expect(0)
    assert moved.out != first
    assert "it is pushed alone" in moved.err


def test_papers_of_another_image_are_not_pushed(built: Built, name: str, small_sif: Path, tmp_path: Path) -> None:
    image = tmp_path / "x.sif"
    shutil.copy(small_sif, image)
    for end in (".cdx.json", ".provenance.json"):
        shutil.copy(f"{built.image}{end}", f"{image}{end}")
    done = built.room.recipe("push", image, f"{name}:1").expect(8)
    assert "does not belong to it" in done.err
    assert "recipe inspect" in done.err
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(name, "manifests/1")


def test_security_07_the_login_goes_to_its_registry_and_into_no_line(built: Built, tmp_path: Path) -> None:
    room = LockRoom(tmp_path / "room")
    with serve_registry(tmp_path, data=tmp_path / "data") as (host, cert):
        more = {"SSL_CERT_FILE": str(cert)}
        line = ("push", built.image, f"oras://{host}/mine/demo:1")
        without = room.recipe(*line, **more).expect(5)
        assert f"error[unauthorized]: {host}: the registry answered 401, and there is no login for it" in without.err
        assert "apptainer registry login" in without.err
        log_in(room, host, word="wrong")
        assert "error[unauthorized]" in room.recipe(*line, **more).expect(5).err
        log_in(room, host)
        done = room.recipe(*line, **more).expect(0)
        assert WORD not in done.out + done.err
        assert "the registry has it already" in room.recipe(*line, **more).expect(0).err


@pytest.mark.parametrize(
    ("image", "reference", "code", "said"),
    [
        ("x.sif", "oras://{host}/Demo:1", 2, "is no name of an image in a registry"),
        ("x.sif", "oras://{host}/demo", 2, "is no name of an image in a registry"),
        ("x.sif", "demo:1", 2, "is no name of an image in a registry"),
        ("x.sif", "oras://me:secretword@{host}/demo:1", 2, "a login is no part of it"),
        ("x.sif", "docker://{host}/demo:1", 2, "is no name of an image in a registry"),
        ("environment.yml", "oras://{host}/demo:1", 2, "not a SIF image"),
        ("missing.sif", "oras://{host}/demo:1", 2, "missing.sif"),
        ("x.sif", "oras://127.0.0.1:9/demo:1", 5, "could not be reached"),
    ],
)
def test_faults_are_said(image: str, reference: str, code: int, said: str, built: Built, registry: str) -> None:
    done = built.room.recipe("push", image, reference.format(host=registry))
    assert (done.code, said in " ".join(done.err.split())) == (code, True), done.err
    assert "fix: " in done.err
    assert "secretword" not in done.err
    assert "Traceback" not in done.err
