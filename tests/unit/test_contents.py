"""What package managers write down, read without trust; folders and archives as images. Squashfs: tests/engines."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import struct
import tarfile
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.inspect import describe_contents, format_contents
from builder.cli.main import run
from builder.inspect import package_databases as read
from builder.inspect.image import read_contents
from builder.inspect.package_databases import read_rpm_packages
from builder.inspect.sif_objects import SBOM, describe_object, name_architecture, plan_object_writes
from builder.model.contents import Contents, InstalledPackage
from builder.model.finding import ConfigError
from builder.sif.sif import DESCRIPTOR, GROUP, HEADER, MAGIC, SifError, parse_sif

SITE = "opt/env/lib/python3.12/site-packages"
CONDA = {
    "name": "numpy", "version": "2.1.0", "build": "py312_0", "subdir": "linux-64", "license": "BSD", "sha256": "a" * 64,
    "channel": "https://user:secret@conda.example.org/t/tk-123/conda-forge/linux-64",
}  # fmt: skip
STATUS = b"""Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u8
Description: GNU C library
 Version: 9.9.9

Package: gone
Status: deinstall ok config-files
Version: 1
"""


def test_a_record_of_conda() -> None:
    package = read.parse_conda_package("opt/env/conda-meta/numpy-2.1.0-py312_0.json", json.dumps(CONDA).encode())
    assert package == InstalledPackage(
        kind="conda", name="numpy", version="2.1.0", build="py312_0", channel="conda-forge", subdir="linux-64",
        license="BSD", sha256="a" * 64, place="/opt/env",
    )  # fmt: skip


@rows("text", [None, b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"name": {}, "sha256": 7}'])
def test_a_record_that_says_nothing_is_known_by_its_name(text: bytes | None) -> None:
    package = read.parse_conda_package("conda-meta/a-b-1.0-h_0.json", text)
    assert package is not None
    assert (package.name, package.version, package.build, package.place) == ("a-b", "1.0", "h_0", "/")
    assert package.sha256 == ""


@rows(
    ("path", "text", "name", "version"),
    [
        (f"{SITE}/six-1.16.0.dist-info/METADATA", b"Name: six\nVersion: 1.17.0\n\nVersion: 9\n", "six", "1.17.0"),
        (f"{SITE}/six-1.16.0.dist-info/METADATA", None, "six", "1.16.0"),
        ("usr/lib/python3/dist-packages/PyYAML-6.0.egg-info/PKG-INFO", b"Name: PyYAML\n", "PyYAML", "6.0"),
        ("usr/lib/python3/dist-packages/old-1.0-py2.7.egg-info", None, "old", "1.0"),
    ],
)
def test_a_distribution_of_python(path: str, text: bytes | None, name: str, version: str) -> None:
    package = read.parse_pip_package(path, text)
    assert package is not None
    assert (package.name, package.version, package.place) == (
        name,
        version,
        f"/{path.rpartition('/')[0]}"[: len(package.place)],
    )


@rows(
    "path",
    [
        f"{SITE}/setuptools/_vendor/wheel-0.46.3.dist-info/METADATA", f"{SITE}/six-1.16.0.dist-info/RECORD",
        "opt/env/conda-meta/history", "home/dpkg/status", f"{SITE}/mytorch/version.py", "x/var/lib/dpkg/status",
    ],
)  # fmt: skip
def test_other_files_are_not_wanted(path: str) -> None:
    assert read.WANTED.fullmatch(path) is None


def test_what_dpkg_lists_as_installed() -> None:
    assert list(read.parse_deb_packages(STATUS)) == [
        InstalledPackage(kind="deb", name="libc6", version="2.36-9+deb12u8", arch="amd64")
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            b"__version__ = '2.8.0+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.1'\n",
            ("2.8.0+rocm6.4", "", "6.4.1", ""),
        ),
        (b'__version__ = "2.8.0a0+52.nv25.06"\ncuda = "12.9"\n', ("2.8.0a0+52.nv25.06", "12.9", "", "")),
        (b"import os\nos.system('x')\n", ("", "", "", "")),
    ],
)  # fmt: skip
def test_what_a_torch_was_built_for(text: bytes, expected: tuple[str, ...]) -> None:
    build = read.parse_torch_build(f"{SITE}/torch/version.py", text)
    assert build is not None
    assert (build.version, build.cuda, build.hip, build.xpu) == expected


def test_control_characters_and_long_names_are_shown_safely() -> None:
    hostile = json.dumps({"name": "\x1b[2Jevil\nname", "version": "9" * 100_000}).encode()
    package = read.parse_conda_package("conda-meta/x-1-0.json", hostile)
    assert package is not None
    assert package.name == "\\x1b[2Jevil\\nname"
    assert len(package.version) <= read.WORD
    text = format_contents(Contents(image="x", kind="sif", size=1, packages=(package,)), everything=True)
    assert "\x1b" not in text


def test_what_conda_installed_is_listed_once() -> None:
    conda = InstalledPackage(kind="conda", name="ruamel.yaml", version="1", place="/opt/env")
    inside = InstalledPackage(
        kind="pip", name="ruamel-yaml", version="1", place="/opt/env/lib/python3.12/site-packages"
    )
    elsewhere = InstalledPackage(kind="pip", name="ruamel-yaml", version="1", place="/usr/lib/python3/dist-packages")
    other = InstalledPackage(kind="pip", name="ruamel-yaml", version="2", place=inside.place)
    assert set(read.remove_duplicates([conda, inside, inside, elsewhere, other])) == {conda, elsewhere, other}


def rpm_header(fields: dict[int, str | int]) -> bytes:
    """A header as rpm stores it."""
    index, data = b"", b""
    for tag, value in fields.items():
        if isinstance(value, int):
            data += b"\0" * (-len(data) % 4)
            index += struct.pack(">IIiI", tag, 4, len(data), 1)
            data += struct.pack(">I", value)
        else:
            index += struct.pack(">IIiI", tag, 6, len(data), 1)
            data += value.encode() + b"\0"
    return struct.pack(">II", len(fields), len(data)) + index + data


def test_a_database_of_rpm(tmp_path: Path) -> None:
    path = tmp_path / "rpmdb.sqlite"
    blobs = [
        rpm_header({1000: "glibc", 1001: "2.34", 1002: "60.el9", 1003: 1, 1022: "x86_64"}),
        rpm_header({1000: "gpg-pubkey", 1001: "1"}), b"", b"\xff" * 40, rpm_header({1001: "1"})[:-1],
    ]  # fmt: skip
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB NOT NULL)")
        connection.executemany("INSERT INTO Packages (blob) VALUES (?)", [(blob,) for blob in blobs])
    connection.close()
    assert read_rpm_packages(path.read_bytes()) == (
        InstalledPackage(kind="rpm", name="glibc", version="1:2.34-60.el9", arch="x86_64"),
    )
    assert read_rpm_packages(b"no database" * 100) is None


def test_a_database_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.inspect.package_databases.STEPS", 300_000)
    path = tmp_path / "rpmdb.sqlite"
    endless = "WITH RECURSIVE n(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM n) SELECT x AS blob FROM n WHERE x < 0"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE VIEW Packages AS {endless}")
    connection.close()
    assert read_rpm_packages(path.read_bytes()) is None


# --- SIF -------------------------------------------------------------------------------------------------------------


def sif(*objects: tuple[int, bytes, bytes], total: int = 4) -> bytes:
    """A SIF of objects (type, extra, content)."""
    data = HEADER.size + total * DESCRIPTOR.size
    table, content = b"", b""
    for number, (kind, extra, text) in enumerate(objects, start=1):
        table += DESCRIPTOR.pack(
            kind, True, number, 0xF0000001, 0, data + len(content), len(text), len(text), 7, 7, 0, 0, b"n", extra
        )
        content += text
    head = HEADER.pack(
        b"#!", MAGIC, b"01", b"02", b"", 7, 7, total - len(objects), total, HEADER.size, total * DESCRIPTOR.size,
        data, len(content),
    )  # fmt: skip
    return head + table.ljust(total * DESCRIPTOR.size, b"\0") + content


def test_a_header_and_one_object_more() -> None:
    image = sif((0x4001, b"", b"Bootstrap: x"))
    found = parse_sif(io.BytesIO(image), size=len(image))
    assert (name_architecture(found), [describe_object(item) for item in found.objects]) == (
        "amd64",
        ["definition file"],
    )
    changes = plan_object_writes(found, kind=SBOM, name="sbom.cdx.json", content=b"{}", extra=b"\1\0\0\0")
    changed = bytearray(image)
    for offset, data in changes:
        changed[offset : offset + len(data)] = data
    assert changes[0] == (len(image), b"{}")
    found = parse_sif(io.BytesIO(bytes(changed)), size=len(changed))
    bill = found.objects[1]
    assert (found.free, describe_object(bill), bill.label, bill.group) == (2, "SBOM", "sbom.cdx.json", GROUP)
    assert changed[bill.offset :] == b"{}"


def test_a_number_is_never_given_twice() -> None:
    image = bytearray(sif((0x4001, b"", b"x")))
    image[HEADER.size + 5 : HEADER.size + 9] = (7).to_bytes(4, "little")
    found = parse_sif(io.BytesIO(bytes(image)), size=len(image))
    (_, descriptor), *_ = plan_object_writes(found, kind=SBOM, name="x", content=b"{}", extra=b"")[1:]
    assert DESCRIPTOR.unpack(descriptor)[2] == 8


def test_no_room_for_one_object_more() -> None:
    image = sif((0x4001, b"", b"x"), total=1)
    found = parse_sif(io.BytesIO(image), size=len(image))
    assert plan_object_writes(found, kind=SBOM, name="x", content=b"{}", extra=b"") == ()


@rows("cut", [10, 127, 130, 500, -1])
def test_a_sif_that_is_cut_off(cut: int) -> None:
    image = sif((0x4001, b"", b"Bootstrap: x"))[:cut]
    with pytest.raises(SifError):
        parse_sif(io.BytesIO(image), size=len(image))


# --- whole images ----------------------------------------------------------------------------------------------------


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return buffer.getvalue()


def test_a_docker_archive_with_a_file_deleted_again(tmp_path: Path) -> None:
    one, two = f"{SITE}/six-1.16.0.dist-info", f"{SITE}/six-1.17.0.dist-info"
    lower = tar_of({f"{one}/METADATA": b"Name: six\nVersion: 1.16.0\n", "./var/lib/dpkg/status": STATUS})
    upper = tar_of({f"{SITE}/.wh.six-1.16.0.dist-info": b"", f"{two}/METADATA": b"Name: six\nVersion: 1.17.0\n"})
    config = json.dumps({"architecture": "amd64", "config": {"Labels": {"recipe.name": "x", "evil": "\x1b[0m"}}})
    manifest = json.dumps([{"Config": "c.json", "Layers": ["a.tar", "b.tar", "missing.tar"]}])
    image = tmp_path / "x.tar"
    files = {"manifest.json": manifest.encode(), "c.json": config.encode(), "a.tar": lower, "b.tar": upper}
    image.write_bytes(tar_of(files))
    contents = read_contents(image)
    assert contents.kind == "docker-archive"
    assert [(item.kind, item.version) for item in contents.packages] == [("deb", "2.36-9+deb12u8"), ("pip", "1.17.0")]
    assert contents.labels == {"evil": "\\x1b[0m", "recipe.name": "x"}
    assert [part.size for part in contents.parts] == [len(lower), len(upper)]
    assert contents.unknown == ("the layer 'missing.tar' is missing",)
    assert json.loads(json.dumps(describe_contents(contents)))["schema"] == 1


def test_an_archive_without_a_root_is_no_image(tmp_path: Path) -> None:
    plain, root = tmp_path / "plain.tar", tmp_path / "root.tar"
    plain.write_bytes(tar_of({"a.txt": b"hello"}))
    root.write_bytes(tar_of({"./usr/bin/env": b"x"}))
    assert read_contents(root).kind == "docker-archive"
    with pytest.raises(ConfigError, match="is an archive, and not an image"):
        read_contents(plain)


def test_a_damaged_squashfs_is_not_an_empty_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zeroed, sound = tmp_path / "zeroed.sqfs", tmp_path / "sound"
    zeroed.write_bytes(b"hsqs" + bytes(300_000))
    (sound / "usr").mkdir(parents=True)
    for line in (["inspect", str(zeroed)], ["diff", str(sound), str(zeroed)]):
        assert run(line) == 2
        out, err = capsys.readouterr()
        assert (out, "no file of the image can be read: zeroed.sqfs" in err) == ("", True)


def test_a_part_that_cannot_be_read_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An archive whose second layer is missing, compared with one that has the same first layer."""
    lower = tar_of({f"{SITE}/six-1.16.0.dist-info/METADATA": b"Name: six\nVersion: 1.16.0\n"})
    for name, layers in (("whole.tar", ["a.tar"]), ("part.tar", ["a.tar", "b.tar"]), ("none.tar", ["b.tar"])):
        manifest = json.dumps([{"Config": "c.json", "Layers": layers}]).encode()
        (tmp_path / name).write_bytes(tar_of({"manifest.json": manifest, "c.json": b"{}", "a.tar": lower}))
    whole, part, none = (str(tmp_path / name) for name in ("whole.tar", "part.tar", "none.tar"))
    assert run(["inspect", part]) == 0
    assert "warning[image-unreadable]" in capsys.readouterr().err
    assert run(["diff", whole, part]) == 2
    err = capsys.readouterr().err
    assert "the layer 'b.tar' is missing" in err
    assert "it is not known whether they are the same" in err
    assert run(["diff", part, whole, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["same"] is None
    assert run(["diff", whole, whole]) == 0
    assert capsys.readouterr().err == "no difference\n"
    assert run(["diff", whole, none]) == 1
    assert "not all of 'none.tar' could be read" in capsys.readouterr().err
    assert run(["inspect", whole]) == 0
    assert capsys.readouterr().err == ""


def test_layers_alone_do_not_vouch_for_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label = json.dumps({"data": {"attributes": {"labels": {"recipe.layers": ""}}}}).encode()
    image = tmp_path / "x.sif"
    image.write_bytes(sif((0x4006, b"inspect-metadata.json", label), (0x4009, b"sbom.cdx.json", b"{}")))
    (tmp_path / "x.sif.cdx.json").write_text("{}")
    assert run(["inspect", str(image), "--integrity"]) == 8
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["ok", "unknown"]
    assert "could be checked in part only" in err
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    (tmp_path / "x.sif.provenance.json").write_text(json.dumps({"subject": [{"digest": {"sha256": digest}}]}))
    assert run(["inspect", str(image), "--integrity"]) == 0


def test_a_folder_whose_links_lead_out_of_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(STATUS)
    root = tmp_path / "root"
    (root / SITE / "six-1.16.0.dist-info").mkdir(parents=True)
    (root / SITE / "six-1.16.0.dist-info" / "METADATA").write_text("Name: six\nVersion: 1.16.0\n")
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").symlink_to(secret)
    contents = read_contents(root)
    assert [item.name for item in contents.packages] == ["six"]


@rows("text", [b"", b"#!/bin/sh\n", b"\0" * 100, sif((0x4001, b"", b"x"))[:-1]])
def test_what_is_no_image(tmp_path: Path, text: bytes) -> None:
    image = tmp_path / "x.sif"
    image.write_bytes(text)
    with pytest.raises(ConfigError):
        read_contents(image)


def test_an_image_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        read_contents(tmp_path / ("x" * 5000))
