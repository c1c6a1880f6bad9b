"""Files that commands write: no input, no special file and no file of another kind is replaced."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.codes import without_codes

from builder.cli.main import run

Capture = pytest.CaptureFixture[str]
YAML = "name: demo\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.12\n"


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an unpacked image, a script and a link to it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "img" / "usr").mkdir(parents=True)
    (tmp_path / "img" / "etc").mkdir()
    (tmp_path / "img" / "etc" / "os-release").write_text('ID=debian\nVERSION_ID="12"\n')
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "list.json").write_text('{"packages": "CycloneDX"}\n')
    (tmp_path / "link.json").symlink_to("train.py")
    (tmp_path / "dangling.json").symlink_to("none")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "img"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("img", "'img' would overwrite the image 'img'"),
        ("train.py", "'train.py' exists and is not an SBOM"),
        ("list.json", "'list.json' exists and is not an SBOM"),
        ("link.json", "'link.json' exists and is not an SBOM"),
        ("dangling.json", "'dangling.json' exists and is not a regular file"),
        ("pipe", "'pipe' exists and is not a regular file"),
        ("img/usr", "'img/usr' is a folder"),
    ],
)
def test_an_sbom_replaces_no_other_file(name: str, reason: str, image: Path, capsys: Capture) -> None:
    place = image.parent / name
    before = (place.is_symlink(), place.read_bytes() if place.is_file() else b"", place.is_dir())
    assert run(["inspect", "--sbom", name, "img"]) == 2
    out, err = capsys.readouterr()
    assert (out, reason in err) == ("", True), err
    assert "--sbom" in err.splitlines()[-1]
    assert (place.is_symlink(), place.read_bytes() if place.is_file() else b"", place.is_dir()) == before


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_an_image_is_not_replaced_under_another_name(
    link: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("img.sif").write_bytes(b"hsqs" + bytes(200))
    link(Path("other"), Path("img.sif"))
    for name in ("img.sif", "other"):
        assert run(["inspect", "--sbom", name, "img.sif"]) == 2
        assert f"'{name}' would overwrite the image 'img.sif'" in without_codes(capsys.readouterr().err)
    assert Path("img.sif").read_bytes() == b"hsqs" + bytes(200)


def test_an_earlier_sbom_is_replaced(image: Path) -> None:
    bill = image.parent / "img.cdx.json"
    assert run(["inspect", "--sbom", str(bill), "img"]) == 0
    first = bill.read_bytes()
    (image / "etc" / "os-release").write_text('ID=debian\nVERSION_ID="13"\n')
    bill.write_bytes(first.replace(b'"img"', b'"old"'))
    assert run(["inspect", "--sbom", str(bill), "img"]) == 0
    assert bill.read_bytes() == first


def test_a_lock_replaces_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo.yml").write_text(YAML)
    Path("demo.lock.yml").write_text("version: 1\nmetadata: of another program\n")
    assert run(["lock", "--offline", "local", "demo.yml"]) == 2
    assert "error: 'demo.lock.yml' exists and is not a lock of recipe" in without_codes(capsys.readouterr().err)
    assert Path("demo.lock.yml").read_text().endswith("of another program\n")


def test_a_full_disk_is_a_fault_of_this_machine(image: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def fill(path: Path, text: str) -> None:
        del text
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("builder.cli.paths.write_atomic", fill)
    assert run(["inspect", str(image), "--sbom", "new.json"]) == 4
    assert "error[no-space]: 'new.json' cannot be written: no space left on device" in capsys.readouterr().err


def test_a_link_to_itself_is_called_so(image: Path, capsys: Capture) -> None:
    (image.parent / "loop.yml").symlink_to("loop.yml")
    assert run(["check", "local", "loop.yml"]) == 2
    assert "fix: it is a link that leads back to itself" in capsys.readouterr().err
    assert run(["status", "loop.yml"]) == 2
    err = capsys.readouterr().err
    assert ("Errno" in err, "too many levels of symbolic links" in err) == (False, True)
