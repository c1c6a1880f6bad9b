"""MNIST's IDX files: read in every form they lie around in, refused in one sentence when they are something else."""

import gzip
from pathlib import Path

import pytest
from support.rows import rows

from builder.smoke import data
from builder.smoke.data import PIXELS
from builder.smoke.options import RunError

IMAGES = "t10k-images-idx3-ubyte"
LABELS = "t10k-labels-idx1-ubyte"


def header(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in numbers)


def images(count: int) -> bytes:
    return header(0x803, count, 28, 28) + bytes(n % 251 for n in range(count * PIXELS))


def labels(count: int) -> bytes:
    return header(0x801, count) + bytes(n % 10 for n in range(count))


def write(folder: Path, files: dict[str, bytes]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(folder)


@rows("suffix", ["", ".gz"])
@rows("inner", ["", "raw", "MNIST/raw"])
def test_reads_plain_and_compressed_files(suffix: str, inner: str, tmp_path: Path) -> None:
    write(tmp_path / inner, {IMAGES + suffix: images(10), LABELS + suffix: labels(10)})
    assert data.read_pair(str(tmp_path), "t10k") == (images(10)[16:], labels(10)[8:])
    assert data.read_pair(str(tmp_path), "train") is None


def test_one_set_is_split_every_fifth_for_the_test(tmp_path: Path) -> None:
    loaded = data.load(write(tmp_path, {IMAGES: images(10), LABELS: labels(10)}))
    assert loaded.source == "mnist"
    assert list(loaded.train[1]) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert list(loaded.test[1]) == [4, 9]
    assert loaded.test[0] == images(10)[16:][4 * PIXELS : 5 * PIXELS] + images(10)[16:][9 * PIXELS :]


def test_both_sets_are_used_as_they_are(tmp_path: Path) -> None:
    files = {IMAGES: images(3), LABELS: labels(3)}
    files |= {name.replace("t10k", "train"): content for name, content in ((IMAGES, images(7)), (LABELS, labels(7)))}
    loaded = data.load(write(tmp_path, files), samples=5)
    assert list(loaded.train[1]) == [0, 1, 2, 3, 4]
    assert len(loaded.train[0]) == 5 * PIXELS
    assert list(loaded.test[1]) == [0, 1, 2]


BAD = {
    "truncated images": ({IMAGES: images(10)[:-1]}, "is truncated: its header says 7840 bytes of data, it has 7839"),
    "long labels": ({LABELS: labels(10) + b"x"}, "is too long: its header says 10 bytes of data, it has 11"),
    "no header": ({IMAGES: images(10)[:9]}, "is truncated: 9 bytes are less than its header"),
    "empty": ({LABELS: b""}, "is truncated: 0 bytes are less than its header"),
    "labels as images": (
        {IMAGES: labels(10)},
        "is not an image file of MNIST: it starts with 0x00000801, expected 0x0",
    ),
    "a web page": ({LABELS: b"<!DOCTYPE html>"}, "is not a label file of MNIST: it starts with 0x3c21444f, expected"),
    "other size": (
        {IMAGES: header(0x803, 1, 32, 32) + bytes(1024)},
        "holds images of 32 x 32 pixels, expected 28 x 28",
    ),
    "other count": ({LABELS: labels(9)}, f'{IMAGES}" holds 10 images but'),
    "label 10": ({LABELS: labels(9)[:4] + header(10) + bytes([10] * 10)}, "holds the label 10, expected 0 to 9"),
}


@rows(("files", "text"), BAD.values(), ids=BAD.keys())
def test_a_wrong_file_is_named(files: dict[str, bytes], text: str, tmp_path: Path) -> None:
    folder = write(tmp_path, {IMAGES: images(10), LABELS: labels(10)} | files)
    with pytest.raises(RunError) as raised:
        data.load(folder)
    assert text in str(raised.value)
    assert f'"{folder}/' in str(raised.value)


@pytest.mark.parametrize(
    ("cut", "text"),
    [
        (lambda packed: packed[: len(packed) // 2], "is truncated: its compressed data ends too early"),
        (lambda packed: packed[:60] + bytes(20) + packed[80:], "is damaged: "),
        (lambda packed: packed[:-8] + bytes(8), "is damaged: CRC check failed"),
    ],
)
def test_damaged_compression_is_named(cut, text: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = write(tmp_path, {IMAGES + ".gz": images(10), LABELS + ".gz": labels(10)})
    path = tmp_path / (IMAGES + ".gz")
    path.write_bytes(cut(path.read_bytes()))
    with pytest.raises(RunError) as raised:
        data.load(folder)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({}, "holds no MNIST files: expected t10k-images-idx3-ubyte"),
        ({IMAGES: images(1)}, 'its "t10k-labels-idx1-ubyte" (plain or .gz) is missing'),
        ({LABELS: labels(1)}, 'its "t10k-images-idx3-ubyte" (plain or .gz) is missing'),
    ],
)
def test_missing_files_are_named(files: dict[str, bytes], text: str, tmp_path: Path) -> None:
    with pytest.raises(RunError) as raised:
        data.load(write(tmp_path, files))
    assert text in str(raised.value)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist"):
        data.load(str(tmp_path / "nowhere"))
