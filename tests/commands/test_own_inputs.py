"""An output that is an input is refused before anything is written, --force or not."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from builder.cli.main import run
from builder.sif.sif import DESCRIPTOR, HEADER, MAGIC

# A whole SIF without content: its header and a table with one free place.
_TABLE = (0, 0, 1, 1, HEADER.size, DESCRIPTOR.size, 4096, 0)
SIF = HEADER.pack(b"#!/usr/bin/env run-singularity\n", MAGIC, b"01\0", b"02\0", bytes(16), *_TABLE) + bytes(4096)
OWN_SITE = "name: own\nextends: local\ntitle: mine\n"


def digests(folder: Path) -> dict[str, str]:
    """Every file with its digest, so that nothing may be written anywhere."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    files: dict[str, bytes] = {
        "env.yml": b"name: x\ndependencies:\n  - python=3.12\n  - pip: [six==1.17.0]\n"
        b"container:\n  base: ./base.sif\n  files: {tool.sif: /opt/tool.sif, out.plan/data.csv: /opt/data.csv}\n",
        "req.txt": b"-r more.sif\n-c pins.sif\n",
        "more.sif": b"six==1.17.0\n", "pins.sif": b"idna==3.10\n", "base.sif": SIF, "tool.sif": b"t",
        "out.plan/data.csv": b"1", "own.yaml": OWN_SITE.encode(), "archive.sif": b"",
        "side.yml": b"name: x\ndependencies: [python=3.12]\n"
        b"container:\n  files: {q.sif.cdx.json: /opt/x, r.sif.provenance.json: /opt/y}\n",
        "q.sif.cdx.json": b"{}", "r.sif.provenance.json": b"{}",
    }  # fmt: skip
    for name, content in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(content)
    os.link(work / "tool.sif", work / "hard.sif")
    (work / "soft.sif").symlink_to("tool.sif")
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path))
    return work


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("build local env.yml -o tool.sif", "the file or folder of the recipe 'tool.sif'"),
        ("build local env.yml -o hard.sif", "the file or folder of the recipe 'tool.sif'"),
        ("build local env.yml -o soft.sif", "the file or folder of the recipe 'tool.sif'"),
        ("build -n local env.yml -o tool.sif", "the file or folder of the recipe 'tool.sif'"),
        ("build local env.yml -o base.sif", "the base image '{}/base.sif'"),
        ("build local env.yml -o out.sif", "the file or folder of the recipe 'out.plan/data.csv'"),
        ("plan local env.yml -o out.plan", "the file or folder of the recipe 'out.plan/data.csv'"),
        ("plan local env.yml -o .", "the recipe 'env.yml'"),
        ("build local req.txt -o more.sif", "the requirements file 'more.sif'"),
        ("build local req.txt -o pins.sif", "the requirements file 'pins.sif'"),
        ("build ./own.yaml req.txt -o own.yaml", "the site file 'own.yaml'"),
        ("build local side.yml -o q.sif", "the file or folder of the recipe 'q.sif.cdx.json'"),
        ("build local side.yml -o r.sif", "the file or folder of the recipe 'r.sif.provenance.json'"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_an_input_is_never_overwritten(
    line: str, what: str, force: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = digests(folder)
    assert run([*line.split(), *(["--force"] if force else [])]) == 2
    said = capsys.readouterr().err
    assert f"would overwrite {what.format(folder)}, which is never replaced\n" in said
    assert "  fix: give another output with -o\n" in said
    assert digests(folder) == before


@pytest.mark.parametrize("name", ["weights", "weights.sif", "x.sif", "soft.sif"])
def test_a_file_of_a_copied_folder_is_never_overwritten(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "data").mkdir()
    for source in ("weights", "weights.sif", "x.sif.failed"):
        (folder / "data" / source).write_bytes(SIF)
    (folder / "data" / "soft.sif").symlink_to("weights")
    (folder / "copies.yml").write_text("name: c\ndependencies: [python=3.12]\ncontainer: {files: {data: /opt/data}}\n")
    before = digests(folder)
    for more in ((), ("--force",)):
        assert run(["build", "local", "copies.yml", "-o", f"data/{name}", *more]) == 2
        said = capsys.readouterr().err
        assert f"would overwrite a file of the folder '{folder}/data'" in said
        assert "--force" not in said
    assert digests(folder) == before


@pytest.mark.parametrize(("recipe", "refused"), [("c", False), ("other", True)])
def test_in_a_copied_folder_only_the_same_image_is_replaced(
    recipe: str, refused: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "data").mkdir()
    text = "name: {}\ndependencies: [python=3.12]\ncontainer: {{files: {{data: /opt/data}}}}\n"
    (folder / "copies.yml").write_text(text.format("c"))
    (folder / "first.yml").write_text(text.format(recipe))
    assert run(["plan", "local", "first.yml", "-o", "data/model.plan"]) == 0
    image = json.loads((folder / "data/model.plan/plan.json").read_text())["image"]
    (folder / "data/model.sif").write_bytes(SIF)
    (folder / "data/model.plan" / image).symlink_to("../model.sif")
    capsys.readouterr()
    for more in (("-n",), ()) if refused else (("-n",),):
        run(["build", "local", "copies.yml", "-o", "data/model.sif", "--force", *more])
        assert ("would overwrite a file of the folder" in capsys.readouterr().err) == refused
    assert (folder / "data/model.sif").read_bytes() == SIF


@pytest.mark.parametrize("more", [(), ("--force",), ("-n",)])
def test_nothing_is_made_through_a_link(
    more: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "dangling.sif").symlink_to("elsewhere.sif")
    assert run(["build", "local", "env.yml", "-o", "dangling.sif", *more]) == 2
    assert "which is not made through a link" in capsys.readouterr().err
    assert not (folder / "elsewhere.sif").exists()


def test_an_archive_is_never_overwritten_by_its_image(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import io
    import tarfile

    for name in ("archive.sif", "other.plan/archive.tar"):
        (folder / name).parent.mkdir(exist_ok=True)
        with tarfile.open(folder / name, "w") as archive:
            for member in ("manifest.json", "repositories"):
                archive.addfile(tarfile.TarInfo(member), io.BytesIO())
    before = digests(folder)
    for words in ("archive.sif", "archive.sif --force", "other.plan/archive.tar -o other.sif --force"):
        assert run(["convert", "local", *words.split()]) == 2
        assert "would overwrite the archive" in capsys.readouterr().err
    assert digests(folder) == before


@pytest.mark.parametrize("line", ["smoke local base.sif -o base.sif", "run local base.sif -o base.sif -- ls"])
def test_an_image_is_never_overwritten_by_a_folder(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = digests(folder)
    assert run(line.split()) == 2
    assert "would overwrite the image" in capsys.readouterr().err
    assert digests(folder) == before


def test_a_plan_beside_a_recipe_that_copies_its_folder_is_fine(folder: Path) -> None:
    (folder / "whole.yml").write_text("name: w\ndependencies: [python=3.12]\ncontainer: {files: {./: /opt/w}}\n")
    assert run(["plan", "local", "whole.yml", "-o", "w.plan"]) == 0
    assert run(["plan", "local", "whole.yml", "-o", "w.plan"]) == 0


@pytest.mark.parametrize("image", ["out.sif", "out"])
def test_an_image_in_a_copied_folder_is_not_copied(image: str, folder: Path) -> None:
    (folder / "src").mkdir()
    for name in ("main.py", image, f"{image}.cdx.json", f"{image}.provenance.json"):
        (folder / "src" / name).write_text("x")
    (folder / "copied.yml").write_text("name: c\ndependencies: [python=3.12]\ncontainer: {files: {src: /opt/src}}\n")
    assert run(["plan", "local", "copied.yml", "-o", "src/out.plan"]) == 0
    copied = folder / "src/out.plan/image/root/opt/src"
    assert [path.name for path in copied.iterdir()] == ["main.py"]


@pytest.mark.parametrize("ending", [".cdx.json", ".provenance.json"])
def test_a_foreign_file_in_place_of_an_attestation_stays(
    ending: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / f"q2.sif{ending}").write_text('{"bomFormat": "CycloneDX"}')
    before = digests(folder)
    assert run(["build", "-n", "local", "env.yml", "-o", "q2.sif"]) == 2
    said = capsys.readouterr().err
    assert f"q2.sif{ending}' exists, and no build wrote it" in said
    assert "  fix: move it, or give another output with -o\n" in said
    assert digests(folder) == before


def test_a_folder_in_place_of_an_attestation_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "q2.sif.cdx.json").mkdir()
    assert run(["build", "-n", "local", "env.yml", "-o", "q2.sif", "--force"]) == 2
    assert "is a folder, and the build writes a file there" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["build -n local env.yml -o loop/x.sif", "plan local env.yml -o loop"])
def test_a_link_that_leads_back_to_itself_is_refused(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "loop").symlink_to("loop")
    assert run(line.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("error[")
    assert "loop" in said
    assert "  fix: " in said
