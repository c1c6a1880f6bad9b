"""SIF images that we write against `apptainer sif`, and SIF images that it writes against our reader."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from recipe_program import run
from support.file_trees import pack

from builder.inspect.sif_objects import SBOM, describe_object, get_use, plan_object_writes, read_signer
from builder.sif.sif import (
    DATA_JSON,
    OVERLAY,
    PARTITION,
    SQUASHFS,
    SYSTEM,
    Object,
    Sif,
    add_object,
    make_empty_sif,
    parse_sif,
    read_header,
    read_object,
    read_sif,
    write_header,
)

pytestmark = pytest.mark.engines

ROW = re.compile(r"(\d+) +\|(\S+) +\|(\S+) +\|(\d+)-(\d+) +\|(.*)")
TIME = 1_000_000_000


def listed(image: Path) -> list[tuple[str, ...]]:
    """What `apptainer sif list` says: number, group, link, begin, end and type."""
    lines = run(["apptainer", "sif", "list", image]).expect(0).out.splitlines()
    return [tuple(word.strip() for word in match.groups()) for line in lines if (match := ROW.match(line.strip()))]


def header(image: Path) -> dict[str, str]:
    """What `apptainer sif header` says."""
    lines = run(["apptainer", "sif", "header", image]).expect(0).out.splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def dumped(image: Path, number: int) -> bytes:
    """The content of an object by `apptainer sif dump`."""
    output = image.with_suffix(".dump")
    run(["bash", "-c", 'apptainer sif dump "$1" "$2" >"$3"', "dump", str(number), image, output]).expect(0)
    return output.read_bytes()


def places(sif: Sif) -> list[tuple[str, str, str]]:
    return [(str(item.number), str(item.offset), str(item.offset + item.size)) for item in sif.objects]


@pytest.fixture
def squashfs(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "opt").mkdir(parents=True)
    (tree / "opt" / "file").write_text("content\n")
    return pack(tree, tmp_path / "x.sqfs", "-comp", "zstd", "-all-root")


def written(path: Path, squashfs: Path, *, machine: str = "x86_64") -> Path:
    """A SIF by us: a system partition, an overlay and a JSON object."""
    sif, content = make_empty_sif(machine), squashfs.read_bytes()
    with path.open("wb") as file:
        for size, options, data in (
            (len(content), {"extra": PARTITION.pack(SQUASHFS, SYSTEM, sif.arch)}, content),
            (len(content), {"extra": PARTITION.pack(SQUASHFS, OVERLAY, sif.arch)}, content),
            (2, {"kind": DATA_JSON, "name": "notes.json", "align": 1}, b"{}"),
        ):
            item: Object = add_object(sif, size=size, **options)  # type: ignore[arg-type]
            file.seek(item.offset)
            file.write(data)
        write_header(file, sif, time=TIME)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("machine", "name"), [("x86_64", "amd64"), ("aarch64", "arm64")])
def test_apptainer_reads_a_sif_of_ours(machine: str, name: str, squashfs: Path, tmp_path: Path) -> None:
    image = written(tmp_path / "x.sif", squashfs, machine=machine)
    sif = read_sif(image)
    rows = listed(image)
    assert [(row[0], row[3], row[4]) for row in rows] == places(sif)
    assert [row[5] for row in rows] == [
        f"FS (Squashfs/*System/{name})", f"FS (Squashfs/Overlay/{name})", "JSON.Generic",
    ]  # fmt: skip
    assert {row[1:3] for row in rows} == {("1", "NONE")}
    found, ours = header(image), read_header(image)
    assert found["Launch Script"] == ours["launch"] == "#!/usr/bin/env run-singularity"
    assert (found["Version"], found["Primary Architecture"]) == ("01", name)
    assert (found["Created At"], found["Modified At"]) == ("2001-09-09 01:46:40 +0000 UTC",) * 2
    assert (found["Descriptors Free"], found["Descriptors Total"]) == (ours["free"], ours["places"]) == ("45", "48")
    assert (found["Descriptors Offset"], found["Data Offset"]) == (ours["table"], ours["data"])
    for item in sif.objects:
        assert dumped(image, item.number) == read_object(image, item)


def test_apptainer_runs_a_sif_of_ours(base_sif: Path, tmp_path: Path) -> None:
    base = read_sif(base_sif).system
    root = tmp_path / "root.sqfs"
    root.write_bytes(base_sif.read_bytes()[base.offset : base.offset + base.size])
    image = written(tmp_path / "x.sif", root)
    assert run(["apptainer", "exec", image, "cat", "/etc/debian_version"]).expect(0).out.startswith("12")


def test_apptainer_adds_and_deletes_in_a_sif_of_ours(squashfs: Path, tmp_path: Path) -> None:
    image, bill = written(tmp_path / "x.sif", squashfs), tmp_path / "bill"
    bill.write_text("{}")
    words = ("--datatype", "9", "--sbomformat", "cyclonedx-json", "--groupid", "1", "--filename", "bill.json")
    run(["apptainer", "sif", "add", *words, image, bill]).expect(0)
    sif = read_sif(image)
    assert [describe_object(item) for item in sif.objects] == [
        "primary system squashfs",
        "overlay squashfs",
        "JSON",
        "SBOM",
    ]
    assert (sif.objects[3].label, read_object(image, sif.objects[3])) == ("bill.json", b"{}")
    run(["apptainer", "sif", "del", "2", image]).expect(0)
    sif = read_sif(image)
    assert [item.number for item in sif.objects] == [1, 3, 4]
    assert sif.overlays == []
    # The free place of the table is used again, and the number is a new one.
    with image.open("r+b") as file:
        for offset, data in plan_object_writes(
            sif, kind=SBOM, name="two", content=b"[]", extra=(1).to_bytes(4, "little")
        ):
            file.seek(offset)
            file.write(data)
    rows = listed(image)
    assert sorted(int(row[0]) for row in rows) == [1, 3, 4, 5]
    assert sorted((row[0], row[3], row[4]) for row in rows) == sorted(places(read_sif(image)))
    assert dumped(image, 5) == b"[]"
    assert header(image)["Descriptors Free"] == read_header(image)["free"] == "44"


def test_we_read_a_sif_of_apptainer(squashfs: Path, tmp_path: Path) -> None:
    image, notes = tmp_path / "new.sif", tmp_path / "notes"
    notes.write_text(json.dumps({"a": 1}))
    run(["apptainer", "sif", "new", image]).expect(0)
    assert read_sif(image).objects == []
    system = ("--datatype", "4", "--parttype", "2", "--partfs", "1", "--partarch", "4", "--groupid", "1")
    key = "433FE984155206BD962725E20E8713472A879943"
    for words, source in (
        (("--datatype", "1", "--groupid", "1"), notes),
        (("--datatype", "6", "--groupid", "1", "--filename", "n" * 120, "--link", "1"), notes),
        (system, squashfs),
        ((*system[:3], "4", *system[4:], "--alignment", "65536"), squashfs),
        (("--datatype", "5", "--signentity", key, "--signhash", "1", "--link", "3"), notes),
    ):
        run(["apptainer", "sif", "add", *words, image, source]).expect(0)
    sif = read_sif(image)
    assert [describe_object(item) for item in sif.objects] == [
        "definition file", "JSON", "primary system squashfs", "overlay squashfs", "signature",
    ]  # fmt: skip
    assert sif.machine == "aarch64"
    assert [get_use(item) for item in sif.objects] == [0, 0, 2, 4, 0]
    assert sif.objects[1].label == "n" * 120
    assert (sif.objects[1].link, sif.objects[4].link, read_signer(sif.objects[4])) == (1, 3, key)
    assert sif.objects[3].offset % 65536 == 0
    assert [(row[0], row[3], row[4]) for row in listed(image)] == places(sif)
    for item in sif.objects:
        assert dumped(image, item.number) == read_object(image, item)


def test_a_header_of_ours_is_apptainers_but_for_id_and_times(squashfs: Path, tmp_path: Path) -> None:
    ours, theirs = written(tmp_path / "ours.sif", squashfs), tmp_path / "theirs.sif"
    notes = tmp_path / "notes.json"
    notes.write_text("{}")
    run(["apptainer", "sif", "new", theirs]).expect(0)
    system = ("--datatype", "4", "--partfs", "1", "--partarch", "2", "--groupid", "1", "--parttype")
    run(["apptainer", "sif", "add", *system, "2", theirs, squashfs]).expect(0)
    run(["apptainer", "sif", "add", *system, "4", theirs, squashfs]).expect(0)
    run(["apptainer", "sif", "add", "--datatype", "6", "--groupid", "1", theirs, notes]).expect(0)
    with theirs.open("r+b") as file:
        sif = parse_sif(file, size=theirs.stat().st_size)
        for item, name in zip(sif.objects, (b"", b"", b"notes.json"), strict=True):
            item.name = name  # theirs are the names of the files that were added
        write_header(file, sif, time=TIME)
    assert read_header(ours) | {"launch": ""} == read_header(theirs) | {"launch": ""}
    one, two = ours.read_bytes(), theirs.read_bytes()
    assert one[4096:] == two[4096:]
