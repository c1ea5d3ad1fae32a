"""IDX files: what is refused, and what the refusal says."""

from __future__ import annotations

import gzip
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from grpc_ps.models.datasets import idx
from grpc_ps.models.spec import DataFileError, Dataset

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"


def images(count: int, declared: int | None = None, side: int = 28) -> bytes:
    """An image file of `count` images whose bytes count up."""
    header = struct.pack(">4I", 0x803, count if declared is None else declared, side, side)
    return header + (np.arange(count * side * side) % 251).astype(np.uint8).tobytes()


def labels(values: list[int]) -> bytes:
    return struct.pack(">2I", 0x801, len(values)) + bytes(values)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good data set: 60 images to train on, 20 to test with; the images gzipped."""
    (tmp_path / f"{TRAIN_IMAGES}.gz").write_bytes(gzip.compress(images(60)))
    (tmp_path / TRAIN_LABELS).write_bytes(labels([i % 10 for i in range(60)]))
    (tmp_path / f"{TEST_IMAGES}.gz").write_bytes(gzip.compress(images(20)))
    (tmp_path / TEST_LABELS).write_bytes(labels([i % 10 for i in range(20)]))
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(DataFileError) as caught:
        idx.load(folder)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_good_folder_is_read_whole(folder: Path) -> None:
    bundle = idx.load(folder)
    assert isinstance(bundle.train, Dataset)
    assert bundle.test is not None
    assert (bundle.train.examples, bundle.test.examples) == (60, 20)
    pixels, classes = bundle.train.take(np.array([59, 1]))
    assert pixels.shape == (2, 784)
    assert pixels.dtype == np.uint8
    assert classes.tolist() == [9, 1]
    assert classes.dtype == np.int32
    assert pixels[1].tolist() == [(784 + i) % 251 for i in range(784)]


def test_the_folder_may_be_the_parent_of_mnist(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    parent = tmp_path_factory.mktemp("parent")
    shutil.copytree(folder, parent / "mnist")
    assert idx.load(parent).train.fingerprint == idx.load(folder).train.fingerprint


def test_gzip_is_told_by_content_not_by_name(folder: Path) -> None:
    before = idx.load(folder).train.fingerprint
    (folder / f"{TRAIN_IMAGES}.gz").write_bytes(images(60))
    (folder / TRAIN_LABELS).write_bytes(gzip.compress(labels([i % 10 for i in range(60)])))
    assert idx.load(folder).train.fingerprint == before


def test_the_fingerprint_tells_other_contents(folder: Path) -> None:
    before = idx.load(folder).train.fingerprint
    (folder / TRAIN_LABELS).write_bytes(labels([i % 9 for i in range(60)]))
    assert idx.load(folder).train.fingerprint != before


@pytest.mark.parametrize(
    ("kept", "counts"),
    [
        ("half", ("expected 47056 bytes", "found ")),
        ("all but one", ("expected 47056 bytes, found 47056 unpacked from ",)),
        ("10", ("expected at least 16 bytes, found 0 unpacked from 10 bytes of gzip data that end too early",)),
        ("0", ("expected at least 16 bytes, found 0",)),
    ],
)
def test_b81_truncated_gzip_images(folder: Path, kept: str, counts: tuple[str, ...]) -> None:
    path = folder / f"{TRAIN_IMAGES}.gz"
    # Level 0, so that half of the file holds about half of the images.
    data = gzip.compress(images(60), compresslevel=0)
    length = {"half": len(data) // 2, "all but one": len(data) - 1}.get(kept)
    path.write_bytes(data[: int(kept) if length is None else length])
    text = refusal(folder)
    assert text.startswith(str(path))
    assert [count for count in counts if count not in text] == []
    assert path.exists()


@pytest.mark.parametrize("kept", [14, 27, 10, 0])
def test_b81_truncated_gzip_labels(folder: Path, kept: int) -> None:
    path = folder / f"{TEST_LABELS}.gz"
    (folder / TEST_LABELS).unlink()
    path.write_bytes(gzip.compress(labels([3] * 20))[:kept])
    text = refusal(folder)
    assert text.startswith(str(path))
    assert "expected" in text
    assert "found" in text
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "data", "counts"),
    [
        (TRAIN_IMAGES, images(60)[:11], "expected at least 16 bytes, found 11"),
        (TRAIN_IMAGES, images(60)[:-1], "expected 47056 bytes, found 47055"),
        (TRAIN_IMAGES, images(60) + b"\0", "expected 47056 bytes, found 47057"),
        (TRAIN_LABELS, labels([0] * 60)[:7], "expected at least 8 bytes, found 7"),
        (TRAIN_LABELS, labels([0] * 60)[:-1], "expected 68 bytes, found 67"),
        (TRAIN_LABELS, labels([0] * 60) + b"\0", "expected 68 bytes, found 69"),
    ],
)
def test_b81_truncated_plain_file(folder: Path, name: str, data: bytes, counts: str) -> None:
    (folder / name).write_bytes(data)
    assert refusal(folder) == f"{folder / name}: {counts}"


def test_b81_surplus_in_and_after_gzip(folder: Path) -> None:
    path = folder / f"{TRAIN_IMAGES}.gz"
    path.write_bytes(gzip.compress(images(60) + b"\0" * 5000))
    assert refusal(folder) == f"{path}: expected 47056 bytes, found 47057 or more"
    path.write_bytes(gzip.compress(images(60)) + b"xyz")
    assert refusal(folder) == f"{path}: 3 surplus bytes after the end of the gzip data"


def test_b81_damaged_gzip(folder: Path) -> None:
    path = folder / f"{TRAIN_IMAGES}.gz"
    data = bytearray(gzip.compress(images(60), compresslevel=0))
    data[1000] ^= 1
    path.write_bytes(bytes(data))
    assert refusal(folder).startswith(f"{path}: damaged gzip data: ")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"<!DOCTYPE html><html><body>Not found</body></html>", "holds an HTML page (it begins with b'<!DOCTYPE html>"),
        (b"\n  <html>", "holds an HTML page"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "holds text (it begins with b'version https://",
        ),
    ],
)
def test_b83_a_page_under_the_files_name(folder: Path, data: bytes, says: str) -> None:
    path = folder / f"{TRAIN_IMAGES}.gz"
    path.write_bytes(data)
    assert refusal(folder).startswith(f"{path}: {says}")


def test_b83_no_file_at_all(folder: Path) -> None:
    path = folder / f"{TRAIN_IMAGES}.gz"
    path.unlink()
    assert refusal(folder) == f"{path}: is missing"
    path.mkdir()
    assert refusal(folder) == f"{path}: is a directory, not a file"
    path.rmdir()
    path.symlink_to(folder / "nowhere")
    assert refusal(folder) == f"{path}: is a dangling link to {folder / 'nowhere'}"
    path.unlink()
    os.mkfifo(path)
    assert refusal(folder) == f"{path}: is not a regular file"


def test_b83_no_read_permission(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:  # Root may read everything, so the system call's answer is played.
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert refusal(folder) == f"{folder / TRAIN_IMAGES}.gz: cannot be read: Permission denied"


def test_b83_no_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == f"--data-dir {tmp_path / 'none'}: there is no such directory"
    assert refusal(tmp_path) == f"{tmp_path / TRAIN_IMAGES}.gz: is missing"


@pytest.mark.parametrize("count", [59, 61])
def test_b85_image_and_label_counts_differ(folder: Path, count: int) -> None:
    (folder / TRAIN_LABELS).write_bytes(labels([0] * count))
    image_file = folder / f"{TRAIN_IMAGES}.gz"
    assert refusal(folder) == f"{image_file}: 60 images, but {folder / TRAIN_LABELS} has {count} labels"


def test_b85_training_images_with_test_labels(folder: Path) -> None:
    shutil.copy(folder / TEST_LABELS, folder / TRAIN_LABELS)
    text = refusal(folder)
    assert "60 images, but " in text
    assert "has 20 labels" in text


def test_b85_header_says_60_and_body_has_59(folder: Path) -> None:
    (folder / f"{TRAIN_IMAGES}.gz").write_bytes(gzip.compress(images(59, declared=60)))
    assert refusal(folder) == f"{folder / TRAIN_IMAGES}.gz: expected 47056 bytes, found 46272"


@pytest.mark.parametrize("value", [10, 255])
@pytest.mark.parametrize("record", [0, 31, 59])
def test_b86_label_out_of_range(folder: Path, record: int, value: int) -> None:
    values = [i % 10 for i in range(60)]
    values[record] = value
    (folder / TRAIN_LABELS).write_bytes(labels(values))
    text = f"label {value} in record {record} (counted from 0), allowed are 0 to 9"
    assert refusal(folder) == f"{folder / TRAIN_LABELS}: {text}"


def test_b86_labels_from_one_to_ten(folder: Path) -> None:
    (folder / TEST_LABELS).write_bytes(labels([i % 10 + 1 for i in range(20)]))
    text = "label 10 in record 9 (counted from 0) and 1 more, allowed are 0 to 9"
    assert refusal(folder) == f"{folder / TEST_LABELS}: {text}"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (labels([0] * 60), "begins with 0x00000801 (labels), expected 0x00000803 (images in IDX format)"),
        (b"\xff" * 20, "begins with 0xffffffff, expected 0x00000803 (images in IDX format)"),
        (images(3, side=32), "images of 32x32, expected 28x28"),
        (images(0), "holds no images"),
    ],
)
def test_another_kind_of_file(folder: Path, data: bytes, says: str) -> None:
    (folder / f"{TRAIN_IMAGES}.gz").write_bytes(data)
    assert refusal(folder) == f"{folder / TRAIN_IMAGES}.gz: {says}"


@pytest.mark.data
@pytest.mark.skipif("GRPC_PS_DATA" not in os.environ, reason="GRPC_PS_DATA names no folder with mnist/ in it")
def test_the_real_mnist() -> None:
    """First labels and counts per class as published."""
    bundle = idx.load(Path(os.environ["GRPC_PS_DATA"]))
    assert isinstance(bundle.train, Dataset)
    assert bundle.test is not None
    assert (bundle.train.examples, bundle.test.examples) == (60000, 10000)
    assert bundle.train.take(np.arange(10))[1].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert bundle.test.take(np.arange(10))[1].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    train_labels = bundle.train.take(np.arange(60000))[1]
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(train_labels).tolist() == counts


def test_b89_eight_processes_read_a_folder_at_once_and_leave_it_as_it_is(folder: Path) -> None:
    """Fault B89: nothing is written beside the files, so the folder may be read-only, and nobody waits for a lock."""
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    before = {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in folder.iterdir()}
    program = (
        "import sys; from pathlib import Path; from grpc_ps.models.datasets import idx;"
        " print(idx.load(Path(sys.argv[1])).train.fingerprint)"
    )
    command = [sys.executable, "-c", program, str(folder)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    try:
        printed = {reader.communicate(timeout=60)[0] for reader in readers}
    finally:
        for reader in readers:
            reader.kill()
            reader.wait(10)
        folder.chmod(0o755)
    assert [reader.returncode for reader in readers] == [0] * 8
    assert printed == {f"{idx.load(folder).train.fingerprint}\n"}
    assert {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in folder.iterdir()} == before
