"""A base image with its own torch, shaped like Intel's, from a registry: Apptainer adds packages to its Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from recipe_program import Room, inside, labels, listing, report_of
from stand_ins.images import docker, stand_in_intel_pytorch
from stand_ins.wheels import write_wheel

pytestmark = pytest.mark.engines

SITE = """
    extends: dawn
    # gzip, which Dawn's runtime gets, packs ten times as long: it is in test_injection.py.
    runtime: {{zstd: "yes"}}
    # The folders of Dawn's nodes are not here.
    build: {{tmpdir: "{tmp}/dawn", cachedir: "{tmp}/dawn-cache"}}
    base_images:
      - reference: docker://{base}
        python: "3.11"
        provides:
          torch: 2.8.0+xpu
          torchvision: 0.23.0+xpu
          intel-extension-for-pytorch: 2.8.10+xpu
        glibc: "2.36"
        source: [own]
    sources:
      own: {{what: the tests' own choice, checked: "2026-11-21"}}
"""
# The torch of the stand-in answers what an image is asked for and cannot train: the imports are the test.
RECIPE = """
    name: fields
    dependencies:
      - pip: [torch, torchvision, needs-torch==1.0, tabulate==0.9.0]
    container:
      env: {COLOUR: deep blue}
      smoke: {imports: [torch, torchvision, needs_torch, tabulate], workloads: []}
"""
FILES = """
import hashlib, importlib.metadata as metadata, json
names = ("torch", "torchvision", "intel-extension-for-pytorch")
files = [(found, str(path)) for found in map(metadata.distribution, names) for path in found.files]
print(json.dumps({path: hashlib.sha256(found.locate_file(path).read_bytes()).hexdigest() for found, path in files
                  if not path.endswith(".pyc")}))
"""


@dataclass(frozen=True, kw_only=True)
class Built:
    room: Room
    base: str
    image: Path


@pytest.fixture(scope="module")
def built(rooms: Callable[[str], Room], docker_daemon: str, base_tar: Path, registry: str) -> Built:
    del docker_daemon
    room = rooms("intel")
    base = stand_in_intel_pytorch(base_tar, registry=registry, scratch=room.folder)
    site = room.site("stand-in-dawn", SITE.format(base=base, tmp=room.folder / "node"))
    write_wheel(room.folder / "wheels", name="needs-torch", version="1.0", requires=["torch>=2"])
    image = room.folder / "fields.sif"
    recipe = room.write("fields.yml", RECIPE)
    room.recipe("build", site, recipe, "-o", image, PIP_FIND_LINKS=str(room.folder / "wheels")).expect(0)
    return Built(room=room, base=base, image=image)


def test_packages_join_the_python_of_the_base_image(built: Built) -> None:
    report = report_of(built.image.with_name("fields.plan"))
    assert (report["status"], [step["status"] for step in report["steps"]]) == ("passed", ["ok", "ok"])
    definition = (built.image.with_name("fields.plan") / "fields-stand-in-dawn.def").read_text()
    assert f"Bootstrap: docker\nFrom: {built.base}\n" in definition
    script = "import needs_torch, tabulate; print(needs_torch.__file__, tabulate.__file__)"
    assert all(
        path.startswith("/usr/local/lib/python3.11/") for path in inside(built.image, "python3", "-c", script).split()
    )
    assert not [path for path in listing(built.image) if path.startswith("/opt/env")]
    assert inside(built.image, "printenv", "COLOUR") == "deep blue\n"


def test_the_image_is_asked_for_its_torch(built: Built) -> None:
    verified = json.loads((built.image.with_name("fields.plan") / "verify.json").read_text())
    assert verified["expected"] == {"vendor": "intel", "torch": "2.8.0+xpu"}
    assert verified["found"]["torch"] == "2.8.0+xpu"
    assert verified["faults"] == []


def test_what_the_base_image_brought_is_untouched(built: Built) -> None:
    before = json.loads(docker("run", "--rm", built.base, "python3", "-c", FILES))
    assert len(before) >= 9
    assert json.loads(inside(built.image, "python3", "-c", FILES)) == before


def test_the_audit_judges_only_what_was_added(built: Built) -> None:
    before = inside(built.image, "cat", "/opt/recipe/base-packages.txt").split()
    assert "torch==2.8.0+xpu" in before
    assert not [row for row in before if row.startswith(("needs-torch", "tabulate"))]
    assert json.loads((built.image.with_name("fields.plan") / "gpu-audit.json").read_text())["ok"]


def test_the_base_image_is_named_in_the_labels(built: Built) -> None:
    assert labels(built.image)["org.opencontainers.image.base.name"] == built.base


def test_the_temporary_folder_of_the_site_is_used_and_left_clean(built: Built) -> None:
    assert list((built.room.folder / "node" / "dawn").iterdir()) == []
    assert (built.room.folder / "node" / "dawn-cache").is_dir()
    assert built.room.left_behind() == []
