"""recipe inspect, diff, bills of materials and signatures with real Apptainer; one image is built for all of it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from recipe_program import TINY, Built, Done, inside, report_of, run

from builder.execute.image_scan import FORMAT, NAME
from builder.inspect.filesystems import FILE_LIMIT
from builder.inspect.image import read_contents
from builder.inspect.sif_objects import SBOM, plan_object_writes
from builder.sif.sif import DESCRIPTOR, list_layers, parse_sif

pytestmark = pytest.mark.engines


def told(built: Built, image: Path) -> dict[str, object]:
    """What `recipe inspect --json` says."""
    return dict(json.loads(built.room.recipe("inspect", image, "--json").expect(0).out))


def test_what_is_inside_is_what_the_image_says_itself(tiny: Built) -> None:
    found = told(tiny, tiny.image)
    asked = json.loads(inside(tiny.image, "/usr/bin/python3", "-m", "pip", "list", "--format", "json"))
    debs = inside(tiny.image, "dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\n").splitlines()
    packages = found["packages"]
    assert isinstance(packages, list)
    python = {(item["name"], item["version"]) for item in packages if item["kind"] == "pip"}
    assert ("six", "1.16.0") in python
    assert {(item["name"], item["version"]) for item in asked} <= python
    assert {f"{item['name']} {item['version']} installed" for item in packages if item["kind"] == "deb"} == {
        line for line in debs if line.endswith(" installed")
    }
    assert found["labels"]["purpose"] == 'a test, "quoted"'  # type: ignore[index]
    assert found["unknown"] == []


def test_the_bill_in_the_image_is_the_one_beside_it(tiny: Built) -> None:
    bill = tiny.image.with_name(f"{tiny.image.name}.cdx.json").read_bytes()
    listed = run(["apptainer", "sif", "list", tiny.image]).expect(0).out
    (line,) = [line for line in listed.splitlines() if "SBOM (cyclonedx-json)" in line]
    assert run(["apptainer", "sif", "dump", line.split("|")[0].strip(), tiny.image]).expect(0).out.encode() == bill
    assert any(item.get("purl") == "pkg:pypi/six@1.16.0" for item in json.loads(bill)["components"])
    digest = hashlib.sha256(tiny.image.read_bytes()).hexdigest()
    assert report_of(tiny.plan)["image_sha256"] == digest
    statement = json.loads(tiny.image.with_name(f"{tiny.image.name}.provenance.json").read_text())
    assert statement["subject"] == [{"name": tiny.image.name, "digest": {"sha256": digest}}]


def test_an_image_is_held_against_what_is_said_of_it(tiny: Built, base_sif: Path, tmp_path: Path) -> None:
    done = tiny.room.recipe("inspect", tiny.image, "--integrity").expect(0)
    assert [line.split()[0] for line in done.out.splitlines()] == ["ok"] * 7, done.out
    # Copied without its plan folder; then a byte of a layer is another.
    image = Path(shutil.copy(tiny.image, tmp_path / tiny.image.name))
    for end in (".cdx.json", ".provenance.json"):
        shutil.copy(f"{tiny.image}{end}", f"{image}{end}")
    found = json.loads(tiny.room.recipe("inspect", image, "--integrity", "--json").expect(0).out)
    assert (found["ok"], len(found["claims"])) == (True, 4)
    with image.open("r+b") as file:
        layer = list_layers(image, parse_sif(file, size=image.stat().st_size))[1]
        file.seek(layer.offset + layer.size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    image.with_name(f"{image.name}.cdx.json").write_text("{}")
    done = tiny.room.recipe("inspect", image, "--integrity").expect(8)
    assert [line.split()[0] for line in done.out.splitlines()] == ["BAD", "ok", "BAD", "BAD"], done.out
    assert "not as it should be: 2" in done.out
    assert "does not match its SBOM, provenance or signature" in done.err
    alone = Path(shutil.copy(base_sif, tmp_path / "alone.sif"))
    assert "has no SBOM, provenance or signature" in tiny.room.recipe("inspect", alone, "--integrity").expect(8).err


def test_we_add_an_object_as_apptainer_does(base_sif: Path, tmp_path: Path) -> None:
    ours, theirs, bill = tmp_path / "ours.sif", tmp_path / "theirs.sif", tmp_path / "bill"
    bill.write_bytes(b'{"bomFormat": "CycloneDX"}')
    for image in (ours, theirs):
        shutil.copy(base_sif, image)
        image.chmod(0o755)
    words = ("--datatype", "9", "--sbomformat", "cyclonedx-json", "--groupid", "1", "--filename", NAME)
    run(["apptainer", "sif", "add", *words, theirs, bill]).expect(0)
    with ours.open("r+b") as file:
        sif = parse_sif(file, size=ours.stat().st_size)
        for offset, data in plan_object_writes(sif, kind=SBOM, name=NAME, content=bill.read_bytes(), extra=FORMAT):
            file.seek(offset)
            file.write(data)
    one, two = bytearray(ours.read_bytes()), bytearray(theirs.read_bytes())
    # Apptainer writes the time of day: into the header and into the new descriptor.
    at = sif.descriptors + len(sif.objects) * DESCRIPTOR.size
    for image in (one, two):
        image[72:80] = bytes(8)
        image[at + 41 : at + 57] = bytes(16)
    assert one == two


def test_two_images_that_differ(tiny: Built, base_sif: Path) -> None:
    assert tiny.room.recipe("diff", tiny.image, tiny.image).expect(0).out == ""
    done = tiny.room.recipe("diff", base_sif, tiny.image).expect(1)
    assert [line.split() for line in done.out.splitlines() if "pip " in line] == [["+", "pip", "six", "1.16.0"]]
    assert ["+", "deb", "less"] in [line.split()[:3] for line in done.out.splitlines()]
    assert done.err == ""


def test_a_signed_build(tiny: Built, base_sif: Path) -> None:
    room = tiny.room
    keys = {"APPTAINER_KEYSDIR": str(room.folder / "keys"), "APPTAINER_CONFIGDIR": str(room.folder / "config")}
    name = ("--name", "A Tester", "--email", "tester@example.org", "--comment", "", "--password", "", "--push=false")
    run(["apptainer", "key", "newpair", *name], env=room.environment(**keys)).expect(0)
    recipe = room.write("signed.yml", TINY.replace("name: tiny", "name: signed").replace("system: [less]", ""))
    image = room.folder / "signed.sif"
    words = ("build", "local", recipe, "--base", base_sif, "-o", image, "--no-smoke")
    room.recipe(*words, "--sign", **keys).expect(0)
    found = told(tiny, image)
    (signature,) = found["signatures"]  # type: ignore[misc]
    assert signature["covers"] == "group 1"
    assert signature["fingerprint"]
    verified: Done = run(["apptainer", "verify", "--local", image], env=room.environment(**keys)).expect(0)
    assert signature["fingerprint"] in f"{verified.out}{verified.err}".upper().replace(" ", "")
    assert "SBOM" in run(["apptainer", "sif", "list", image]).expect(0).out
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    assert report_of(room.folder / "signed.plan")["image_sha256"] == digest
    assert "signature: good" in room.recipe("inspect", image, "--integrity", **keys).expect(0).out
    # A second build has no signature, and all else is the same.
    assert "the same bytes" in room.recipe(*words, "--reproduce", **keys).expect(0).err
    assert inside(image, "python3", "-c", "import six; print(six.__version__)") == "1.16.0\n"
    assert "nothing to do" in room.recipe(*words, "--sign", **keys).expect(0).err


def test_a_build_that_cannot_be_signed(tiny: Built, base_sif: Path) -> None:
    room = tiny.room
    keys = {"APPTAINER_KEYSDIR": str(room.folder / "none"), "APPTAINER_CONFIGDIR": str(room.folder / "none")}
    words = ("build", "local", tiny.recipe, "--base", base_sif, "-o", room.folder / "unsigned.sif", "--no-smoke")
    done = room.recipe(*words, "--sign", **keys).expect(4)
    assert "no key" in done.err
    assert not (room.folder / "unsigned.sif").exists()


def test_hostile_names_and_sizes_in_a_squashfs(tmp_path: Path) -> None:
    root, site = tmp_path / "root", "lib/python3.12/site-packages"
    line = "-rw-r--r-- 0/0 9 2026-01-01 00:00 squashfs-root"
    for name in ("good-1", "[a]*-2", "-x-3", "\x1b[2Jred-4", "\udcff-5"):
        (root / site / f"{name}.dist-info").mkdir(parents=True)
        (root / site / f"{name}.dist-info/METADATA").write_text(f"Version: 1\nName: {name[:3].strip(chr(0xDCFF))}\n")
    # The listing seems to name a file that is none.
    (root / f"x\n{line}" / site / "fake-1.dist-info").mkdir(parents=True)
    (root / f"x\n{line}" / site / "fake-1.dist-info/METADATA").write_text("Name: fake\n")
    (root / site / "huge-1.dist-info").mkdir()
    with (root / site / "huge-1.dist-info/METADATA").open("wb") as file:
        file.truncate(FILE_LIMIT + 1)
    (root / "-o" / site / "option-1.dist-info").mkdir(parents=True)
    (root / "-o" / site / "option-1.dist-info/METADATA").write_text("Name: option\nVersion: 1\n")
    image = tmp_path / "x.sqfs"
    run(["mksquashfs", root, image, "-quiet", "-no-progress"]).expect(0)
    found = read_contents(image)
    names = {item.name for item in found.packages}
    assert {"good"[:3], "[a]", "-x-", "option"} <= names
    assert "huge" not in names
    assert not any("\x1b" in text or "\n" in text for text in (*names, *found.unknown))
