"""The bill of materials and the provenance: valid by their own standards, the same bytes, nothing of the machine."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from packageurl import PackageURL
from support.bill_samples import CONTENTS, PACKAGES
from support.rows import rows
from test_contents import sif

from builder.cli.inputs import find_sites_folder, make_context
from builder.compile.compile import compile_plan
from builder.execute.image_scan import SbomTask, _write
from builder.inspect.attestations import (
    find_foreign_attestation,
    make_provenance,
    make_purl,
    make_sbom,
    write_attestations,
)
from builder.model.contents import InstalledPackage
from builder.model.recipe import Recipe
from builder.model.report import Report
from builder.model.site import Site
from builder.pipeline.resolution import load, resolve_recipe
from builder.sif.bounded import hash_file
from builder.sif.sif import read_sif


@rows("package", PACKAGES, ids=lambda package: package.name)
def test_purls_are_those_of_their_standard(package: InstalledPackage) -> None:
    found = make_purl(package, distribution="debian 12")
    parsed = PackageURL.from_string(found)
    assert "x1b" in package.name or parsed.to_string() == found
    version = parsed.version or ""
    if "epoch" in parsed.qualifiers:  # of rpm it is no part of the version
        assert package.kind == "rpm"
        version = f"{parsed.qualifiers['epoch']}:{version}"
    assert version == package.version


def test_the_same_packages_in_another_order_give_the_same_bytes() -> None:
    mixed = list(PACKAGES)
    random.Random(3).shuffle(mixed)
    one, two = CONTENTS, replace(CONTENTS, packages=tuple(mixed), image="another.sif", size=2)
    assert make_sbom(one, name="x", tool="recipe 1") == make_sbom(two, name="x", tool="recipe 1")


def test_folders_of_the_machine_that_built_stay_out() -> None:
    text = make_sbom(replace(CONTENTS, base="/home/somebody/base.sif"), name="x", tool="recipe 1")
    assert "somebody" not in text
    assert "file:base.sif" in text


def test_another_version_gives_another_number() -> None:
    other = replace(CONTENTS, packages=(replace(PACKAGES[0], version="5"), *PACKAGES[1:]))
    numbers = {json.loads(make_sbom(item, name="x", tool="t 1"))["serialNumber"] for item in (CONTENTS, other)}
    assert len(numbers) == 2


@pytest.mark.parametrize("padding", [0, 3000])
def test_the_digest_is_of_the_image_with_the_bill_inside(tmp_path: Path, padding: int) -> None:
    image = tmp_path / "x.sif"
    image.write_bytes(sif((0x4001, b"", b"Bootstrap: x\n" * 200_000)))
    size = image.stat().st_size
    image.write_bytes(image.read_bytes() + bytes(padding))
    inside = SbomTask(image, name="x", tool="recipe 1")
    digest = inside.finish()
    assert inside.text
    assert digest == hashlib.sha256(image.read_bytes()).hexdigest()
    objects = read_sif(image).objects
    assert image.read_bytes()[size:].rstrip(b"\0") == inside.text.encode()
    assert objects[-1].size == len(inside.text.encode())
    now = image.stat().st_size
    again = SbomTask(image, name="x", tool="recipe 1")
    assert (again.finish(), image.stat().st_size) == (digest, now)


@rows("padding", [0, 3, 8, 4000])
@rows("length", [0, 10, 1024 * 1024 - 5004, 1024 * 1024, 1024 * 1024 + 1])
def test_the_digest_of_what_will_be_written(tmp_path: Path, length: int, padding: int) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"a" * 5000 + b"b" * length + bytes(padding))
    changes = ((5000 + length, b"the bill"), (4096, b"descriptor"), (80, b"header"))
    digest = hash_file(file, changes=changes)
    _write(file, changes)
    assert digest == hashlib.sha256(file.read_bytes()).hexdigest()


def test_what_follows_the_data_is_never_written_over(tmp_path: Path) -> None:
    image = tmp_path / "x.sif"
    image.write_bytes(sif((0x4001, b"", b"x")) + b"something of others")
    before = image.read_bytes()
    assert SbomTask(image, name="x", tool="recipe 1").finish() == hashlib.sha256(before).hexdigest()
    assert image.read_bytes() == before


def test_what_cannot_be_read_does_not_stop_a_build(tmp_path: Path) -> None:
    image = tmp_path / "x.sif"
    image.write_bytes(b"no image at all")
    inside = SbomTask(image, name="x", tool="recipe 1")
    assert inside.finish() == hashlib.sha256(b"no image at all").hexdigest()
    assert (inside.text, "not an image" in inside.unknown) == ("", True)


def test_papers_of_an_image(tmp_path: Path) -> None:
    env = tmp_path / "secret-home" / "environment.yml"
    env.parent.mkdir()
    env.write_text("name: x\ndependencies:\n  - pip: [six==1.16.0]\n")
    words = {"account": "", "torch_index": "", "driver": "", "backend": "", "base": str(env.parent / "base.sif")}
    plan = compile_plan(resolve_recipe(*_inputs("local", env), context=make_context(**words)))
    image = tmp_path / "x.sif"
    report = Report(
        target=plan.target, status="passed", image=str(image), steps=(), image_sha256="e" * 64,
        started="2026-01-01T00:00:00Z", versions={"apptainer": "apptainer version 1.4.5"},
    )  # fmt: skip
    bill = make_sbom(CONTENTS, name="x", tool="recipe 1")
    assert write_attestations(plan, report, sbom=bill) == ""
    assert (tmp_path / "x.sif.cdx.json").read_text() == bill
    assert find_foreign_attestation(image) is None
    text = (tmp_path / "x.sif.provenance.json").read_text()
    statement = json.loads(text)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [{"name": "x.sif", "digest": {"sha256": "e" * 64}}]
    definition, details = statement["predicate"]["buildDefinition"], statement["predicate"]["runDetails"]
    assert [item["name"] for item in definition["resolvedDependencies"]] == ["base image", "recipe"]
    assert definition["resolvedDependencies"][0]["uri"] == "file:base.sif"
    assert details["byproducts"][0]["digest"]["sha256"] == hashlib.sha256(bill.encode()).hexdigest()
    assert "secret-home" not in text
    assert make_provenance(plan, report, name="x.sif", finished="", sbom=None).count("byproducts") == 1


def test_an_image_that_failed_has_no_papers(tmp_path: Path) -> None:
    report = Report(target="x", status="smoke-failed", image=str(tmp_path / "x.sif.failed"), steps=())
    assert write_attestations(None, report, sbom="{}") == ""  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "version", "expected"),
    [
        ("rpm", "2:8.2.2637-20.el9", "pkg:rpm/rocky/vim@8.2.2637-20.el9?arch=x86_64&distro=rocky-9&epoch=2"),
        ("rpm", "8.2-20.el9", "pkg:rpm/rocky/vim@8.2-20.el9?arch=x86_64&distro=rocky-9"),
        ("deb", "2:9.0-1", "pkg:deb/rocky/vim@2:9.0-1?arch=x86_64&distro=rocky-9"),
    ],
)
def test_security_21_the_epoch_of_an_rpm_is_a_qualifier(kind: str, version: str, expected: str) -> None:
    package = InstalledPackage(kind=kind, name="vim", version=version, arch="x86_64")  # type: ignore[arg-type]
    assert make_purl(package, distribution="rocky 9") == expected


def _inputs(site: str, env: Path) -> tuple[Site, Recipe]:
    sites, recipes = load([site], [env], folder=find_sites_folder())
    return sites[0], recipes[0]
