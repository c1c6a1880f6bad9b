"""The image into its place."""

from __future__ import annotations

import hashlib
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.execute.build_options import SignalInterrupt
from builder.system.publish import Digest, measure_image, publish


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder on another file system."""
    memory = Path("/dev/shm")
    here = Path(tempfile.gettempdir()).stat().st_dev
    if not memory.is_dir() or memory.stat().st_dev == here:
        pytest.skip("no second file system here")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def image_in(folder: Path, text: str = "image") -> Path:
    folder.mkdir(exist_ok=True)
    image = folder / "image.sif"
    image.write_text(text)
    image.chmod(0o755)
    return image


def test_an_image_is_moved_and_a_link_left(tmp_path: Path) -> None:
    image, output = image_in(tmp_path / "kit"), tmp_path / "x.sif"
    inode = image.stat().st_ino
    output.write_text("old")
    publish(image, output)
    assert output.read_text() == "image"
    assert output.stat().st_ino == inode
    assert image.readlink() == Path("../x.sif")
    publish(image, output)  # nothing is left to do
    assert output.read_text() == "image"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kit", "x.sif"]


def test_an_image_goes_to_another_file_system(tmp_path: Path, elsewhere: Path) -> None:
    image, output = image_in(tmp_path / "kit"), elsewhere / "x.sif"
    output.write_text("old")
    publish(image, output)
    assert output.read_text() == image.read_text() == "image"
    assert image.is_symlink()
    assert output.stat().st_mode & stat.S_IXUSR
    assert [path.name for path in elsewhere.iterdir()] == ["x.sif"]


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("folder", [False, True])
def test_a_new_output_replaces_nothing(tmp_path: Path, elsewhere: Path, other: bool, folder: bool) -> None:
    image = folder_image(tmp_path / "kit" / "image", "x") if folder else image_in(tmp_path / "kit")
    output = (elsewhere if other else tmp_path) / "x.sif"
    output.write_text("of the user")
    with pytest.raises(FileExistsError):
        publish(image, output, new=True)
    assert output.read_text() == "of the user"
    assert image.exists()
    assert not image.is_symlink()
    output.unlink()
    publish(image, output, new=True)
    assert output.is_dir() == folder
    assert image.is_symlink()
    assert [path.name for path in output.parent.iterdir() if path.name != "kit"] == ["x.sif"]


def folder_image(path: Path, text: str) -> Path:
    (path / "bin").mkdir(parents=True)
    (path / "bin/python").write_text(text)
    (path / "bin/python3").symlink_to("python")
    return path


@pytest.mark.parametrize("other", [False, True])
def test_a_folder_is_moved_as_a_whole(tmp_path: Path, elsewhere: Path, other: bool) -> None:
    image = folder_image(tmp_path / "kit" / "env", "new")
    output = folder_image((elsewhere if other else tmp_path) / "env", "old")
    (output / "old").touch()
    publish(image, output)
    assert (output / "bin/python3").read_text() == "new"
    assert (output / "bin/python3").is_symlink()
    assert not (output / "old").exists()
    assert not [path for path in output.parent.iterdir() if path.name.startswith(".")]


def test_a_copy_that_breaks_off_leaves_the_old_output(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, output = image_in(tmp_path / "kit"), elsewhere / "x.sif"
    output.write_text("old")

    def broken_copy(_source: Path, draft: Path) -> None:
        draft.write_text("hal")
        raise SignalInterrupt(signal.SIGTERM)

    monkeypatch.setattr("builder.system.publish._copy", broken_copy)
    with pytest.raises(SignalInterrupt):
        publish(image, output)
    assert output.read_text() == "old"
    assert image.read_text() == "image"
    assert [path.name for path in elsewhere.iterdir()] == ["x.sif"]


def test_an_image_is_measured(tmp_path: Path) -> None:
    image = tmp_path / "x.sif"
    image.write_bytes(b"abc")
    assert measure_image(image) == 3
    digest = Digest(image)
    image.unlink()  # it is moved while it is read
    assert digest.wait() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    large = bytes(range(256)) * 8191 + b"end"  # no whole number of blocks
    image.write_bytes(large)
    assert Digest(image).wait() == hashlib.sha256(large).hexdigest()
    folder = folder_image(tmp_path / "env", "four")
    assert (measure_image(folder), Digest(folder).wait()) == (4 + len("python"), None)
    with pytest.raises(FileNotFoundError):
        Digest(tmp_path / "none.sif").wait()
