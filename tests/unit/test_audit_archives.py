"""Wheels, conda packages, folders and links that a stranger may have made; the files in them are stand-ins."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.made_elf import bundle, compressed, elf, fatbin, installed, wheel

from builder.audit import content
from builder.audit.content import AuditError
from builder.audit.installed import read_folder
from builder.audit.package_archives import read_conda, read_wheel

CUDA = elf(needed=["libcudart.so.12"], sections={".nv_fatbin": fatbin(("cubin", 90, "", ""))})
INDEX = b'{"name": "pytorch", "version": "2.5.1", "build": "cuda126_0"}'


def tar(files: Mapping[str, bytes]) -> bytes:
    room = io.BytesIO()
    with tarfile.open(fileobj=room, mode="w") as archive:
        for name, data in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return room.getvalue()


def in_bz2(folder: Path, files: Mapping[str, bytes]) -> Path:
    import bz2

    path = folder / "a-1-0.tar.bz2"
    path.write_bytes(bz2.compress(tar({"info/index.json": INDEX, **files})))
    return path


def in_conda(folder: Path, files: Mapping[str, bytes]) -> Path:
    path = folder / "a-1-0.conda"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
        archive.writestr("pkg-a-1-0.tar.zst", compressed(tar(files)))
        archive.writestr("info-a-1-0.tar.zst", compressed(tar({"info/index.json": INDEX})))
    return path


@pytest.mark.parametrize("make", [in_bz2, in_conda])
def test_a_conda_package(make: Callable[[Path, Mapping[str, bytes]], Path], tmp_path: Path) -> None:
    files = {"lib/libtorch_cuda.so": CUDA, "lib/a.py": b"x" * 100, "lib/libother.so": elf(glibc=["GLIBC_2.17"])}
    (one,) = read_conda(make(tmp_path, files)).distributions
    assert (one.kind, one.name, one.version) == ("conda", "pytorch", "2.5.1")
    assert [(binary.path, [str(code) for code in binary.code]) for binary in one.binaries] == [
        ("lib/libtorch_cuda.so", ["sm_90"]), ("lib/libother.so", []),
    ]  # fmt: skip


def test_a_large_file_goes_through_a_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "IN_MEMORY", 100)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (one,) = read_wheel(wheel(tmp_path / "a-1-x.whl", {"a.so": CUDA})).distributions
    assert [str(code) for binary in one.binaries for code in binary.code] == ["sm_90"]
    assert [path.name for path in tmp_path.iterdir()] == ["a-1-x.whl"]


@pytest.mark.parametrize("name", ["a.whl", "a.conda", "a.tar.bz2"])
def test_what_is_no_archive(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"no archive at all" * 100)
    with pytest.raises(AuditError):
        (read_wheel if name == "a.whl" else read_conda)(path)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.so", b"\x7fELF" + bytes(1 << 20))
        member = archive.infolist()[0]
        member.file_size = 1 << 40  # only said: it is the list of members that is believed
    with pytest.raises(AuditError, match="it unpacks to more than 1024 MiB and 60 times its size"):
        read_wheel(path)


def test_a_list_of_members_that_would_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "a-1-py3-none-any.whl"
    path.write_bytes(b"PK\5\6" + struct.pack("<4H2IH", 0, 0, 65535, 65535, 0xFFFFFFFE, 0, 0))
    with pytest.raises(AuditError, match="more than 300000 members"):
        read_wheel(path)


def test_a_member_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = wheel(tmp_path / "a-1-x.whl", {"a/bad.so": CUDA * 50, "a/good.so": CUDA})
    data = bytearray(path.read_bytes())
    at = data.find(b"a/bad.so") + 8
    data[at : at + 40] = b"\xff" * 40
    path.write_bytes(data)
    found = read_wheel(path)
    assert [one.path for one in found.unread] == ["a/bad.so"]
    assert [binary.path for binary in found.distributions[0].binaries] == ["a/good.so"]


def test_conda_packages_unpack_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.audit.package_archives.ROOM", 1 << 20)
    path = tmp_path / "a-1-0.conda"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pkg-a-1-0.tar.zst", compressed(tar({"a.so": b"\x7fELF" + bytes(64 << 20)})))
    with pytest.raises(AuditError, match="it unpacks to more than"):
        read_conda(path)


def test_no_link_of_a_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.so").write_bytes(CUDA)
    root = tmp_path / "root"
    root.mkdir()
    (root / "in").symlink_to(tmp_path / "outside")
    (root / "x.so").symlink_to(tmp_path / "outside/secret.so")
    found = read_folder(root)
    assert found.distributions == ()
    assert found.names == {"x.so"}


def test_who_installed_a_file(tmp_path: Path) -> None:
    root, site = tmp_path / "root", tmp_path / "root/opt/conda/lib/python3.12/site-packages"
    installed(site, "my_pkg", {"my/a.so": CUDA, "../../b.so": elf()}, version="2.0")
    meta = root / "opt/conda/conda-meta"
    meta.mkdir()
    (meta / "libx-1-0.json").write_text('{"name": "libx", "version": "1", "files": ["lib/libx.so", "lib/b.so"]}')
    (root / "opt/conda/lib/libx.so").write_bytes(elf())
    (root / "usr/lib").mkdir(parents=True)
    (root / "usr/lib/libdeb.so").write_bytes(elf())
    (root / "usr/lib/own.so").write_bytes(elf())
    (root / "var/lib/dpkg/info").mkdir(parents=True)
    (root / "var/lib/dpkg/info/libdeb1:amd64.list").write_text("/.\n/lib\n/lib/libdeb.so\n")
    found = {(one.kind, one.name, one.version): one for one in read_folder(root).distributions}
    assert {key: [binary.name for binary in one.binaries] for key, one in found.items()} == {
        ("pip", "my-pkg", "2.0"): ["b.so", "a.so"], ("conda", "libx", "1"): ["libx.so"],
        ("deb", "libdeb1", ""): ["libdeb.so"], ("files", "/usr/lib", ""): ["own.so"],
    }  # fmt: skip
    assert found["pip", "my-pkg", "2.0"].python == "3.12"


def test_a_bundle_in_a_folder_of_any_kind(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(elf(sections={".hip_fatbin": bundle("gfx90a")}))
    (tmp_path / "long.so").write_bytes(elf() + bytes(2000))
    (one,) = read_folder(tmp_path).distributions
    assert (one.kind, one.name, len(one.binaries)) == ("files", "/", 2)
