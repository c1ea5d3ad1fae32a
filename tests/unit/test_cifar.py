"""CIFAR-10's files: what is read, what is refused, and what the refusal says."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cifar_files import NAMES, RECORDS, records, small_files, write_files

from grpc_ps.models.datasets import cifar
from grpc_ps.models.spec import AugmentedDataset, DataFileError

__all__ = ["small_files"]

SIZE = RECORDS * 3073
FORM = f"({RECORDS} records of 3073 bytes)"

pytestmark = pytest.mark.usefixtures("small_files")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good data set, one file of it gzipped."""
    write_files(tmp_path)
    (tmp_path / "data_batch_4.bin").unlink()
    (tmp_path / "data_batch_4.bin.gz").write_bytes(gzip.compress(records(3).tobytes()))
    return tmp_path


def refusal(folder: Path, *names: str) -> str:
    with pytest.raises(DataFileError) as caught:
        cifar.load(folder, *names)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_good_folder_is_read_whole(folder: Path) -> None:
    bundle = cifar.load(folder)
    assert isinstance(bundle.train, AugmentedDataset)
    assert bundle.test is not None
    assert (bundle.train.examples, bundle.test.examples) == (5 * RECORDS, RECORDS)
    images, labels = bundle.train.take(np.array([3 * RECORDS + 7, 1]))
    assert (images.shape, images.dtype, labels.dtype) == ((2, 24, 24, 3), np.float32, np.int32)
    assert labels.tolist() == [7, 1]
    # Planes of red, green and blue, row by row; the middle is rows and columns 4 to 27.
    pixels = records(3)[7, 1:].reshape(3, 32, 32).transpose(1, 2, 0)[4:28, 4:28].astype(np.float64)
    np.testing.assert_allclose(images[0], (pixels - pixels.mean()) / pixels.std(), rtol=1e-5, atol=1e-5)


def test_the_folder_may_be_the_parent(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    parent = tmp_path_factory.mktemp("parent")
    shutil.copytree(folder, parent / cifar.FOLDER)
    assert cifar.load(parent).train.fingerprint == cifar.load(folder).train.fingerprint


def test_gzip_is_told_by_content_and_other_contents_by_the_fingerprint(folder: Path) -> None:
    before = cifar.load(folder).train.fingerprint
    (folder / "data_batch_2.bin").write_bytes(gzip.compress(records(1).tobytes()))
    assert cifar.load(folder).train.fingerprint == before
    (folder / "data_batch_2.bin").write_bytes(records(9).tobytes())
    assert cifar.load(folder).train.fingerprint != before


@pytest.mark.parametrize("name", ["data_batch_3", "test_batch"])
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda data: data[:-1], f"expected {SIZE} bytes {FORM}, found {SIZE - 1}"),
        (lambda data: data + b"\0", f"expected {SIZE} bytes {FORM}, found {SIZE + 1}"),
        (lambda data: data[:-3073], f"expected {SIZE} bytes {FORM}, found {SIZE - 3073}"),
        (lambda data: b"", f"expected at least 1 bytes {FORM}, found 0"),
        (lambda data: gzip.compress(data + b"\0"), f"expected {SIZE} bytes {FORM}, found {SIZE + 1} or more"),
    ],
)
def test_b88_another_length(folder: Path, name: str, change: Callable[[bytes], bytes], found: str) -> None:
    path = folder / f"{name}.bin"
    path.write_bytes(change(path.read_bytes()))
    assert refusal(folder) == f"{path}: {found}"


def test_b88_a_missing_file_unless_a_part_is_asked_for(folder: Path) -> None:
    for name in ("data_batch_2.bin", "data_batch_4.bin.gz"):
        (folder / name).unlink()
    there = "data_batch_1,data_batch_3,data_batch_5"
    text = f"{folder / 'data_batch_2.bin.gz'}: is missing; to train on the files that are there: --data {there}"
    assert refusal(folder) == text
    bundle = cifar.load(folder, *there.split(","))
    assert bundle.train.examples == 3 * RECORDS
    assert "60 images to train on of data_batch_1, data_batch_3, data_batch_5 and 20 to test with" in bundle.description
    assert refusal(folder, "data_batch_1", "data_batch_2") == f"{folder / 'data_batch_2.bin.gz'}: is missing"


def test_b88_no_file_at_all(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path / 'data_batch_1.bin.gz'}: is missing"
    assert refusal(tmp_path / "none") == f"--data-dir {tmp_path / 'none'}: there is no such directory"


def test_b88_no_test_file(folder: Path) -> None:
    (folder / "test_batch.bin").unlink()
    assert refusal(folder) == f"{folder / 'test_batch.bin.gz'}: is missing"


def test_b81_truncated_gzip(folder: Path) -> None:
    path = folder / "data_batch_4.bin.gz"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    text = refusal(folder)
    assert text.startswith(f"{path}: expected {SIZE} bytes {FORM}, found ")
    assert text.endswith("bytes of gzip data that end too early")


def test_b83_a_page_under_the_files_name(folder: Path) -> None:
    path = folder / "data_batch_1.bin"
    path.write_bytes(b"<!DOCTYPE html><html>")
    assert refusal(folder).startswith(f"{path}: holds an HTML page")
    path.unlink()
    path.mkdir()
    assert refusal(folder) == f"{path}: is a directory, not a file"


@pytest.mark.parametrize("value", [10, 255])
@pytest.mark.parametrize("record", [0, 11, RECORDS - 1])
def test_b86_label_out_of_range(folder: Path, record: int, value: int) -> None:
    path = folder / "data_batch_5.bin"
    data = records(4)
    data[record, 0] = value
    path.write_bytes(data.tobytes())
    assert refusal(folder) == f"{path}: label {value} in record {record} (counted from 0), allowed are 0 to 9"


def test_synthetic_images_are_the_same_everywhere() -> None:
    one, two = cifar.synthetic(), cifar.synthetic()
    assert one.train.fingerprint == two.train.fingerprint
    assert one.test is None
    assert one.description == f"synthetic, {RECORDS} random images of 32x32 in colour"
    assert isinstance(one.train, AugmentedDataset)
    assert set(one.train.take(np.arange(RECORDS))[1]) <= set(range(10))


@pytest.mark.data
@pytest.mark.skipif("GRPC_PS_DATA" not in os.environ, reason="GRPC_PS_DATA names no folder with CIFAR-10 in it")
def test_the_real_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """First labels and counts per class as published."""
    monkeypatch.setattr(cifar, "RECORDS", 10_000)
    bundle = cifar.load(Path(os.environ["GRPC_PS_DATA"]), "data_batch_1")
    assert isinstance(bundle.train, AugmentedDataset)
    assert bundle.test is not None
    labels = bundle.train.take(np.arange(10_000))[1]
    assert labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert np.bincount(labels).tolist() == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    assert bundle.test.take(np.arange(10))[1].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]


def test_the_files_that_are_named_are_the_published_ones() -> None:
    assert (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch") == NAMES
    assert cifar.PUBLISHED.holds == tuple(f"{name}.bin" for name in NAMES)
