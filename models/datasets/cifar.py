"""CIFAR-10 in its published binary format: six files, gzipped or not, checked whole before any of it is used.

Format (Krizhevsky): 10,000 records a file of one label byte, then 1,024 bytes each of red, green and blue, row by row.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from grpc_ps.models.datasets import PARTS as TRAIN
from grpc_ps.models.datasets import Progress
from grpc_ps.models.datasets.arrays import fingerprint_of
from grpc_ps.models.datasets.crops import CHANNELS, Crops
from grpc_ps.models.datasets.download import Published, fetch
from grpc_ps.models.datasets.files import check_labels, folder_of, read_whole, stored
from grpc_ps.models.spec import DataBundle, DataFileError

FOLDER = "cifar-10-batches-bin"
TEST = "test_batch"
RECORDS = 10_000
SIDE = 32
RECORD = 1 + CHANNELS * SIDE * SIDE
CLASSES = 10

BASE = "https://www.cs.toronto.edu/~kriz"
"""Where the files are published: the author's page."""

PUBLISHED = Published(
    name="cifar-10-binary.tar.gz",
    size=170_052_171,
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    holds=tuple(f"{name}.bin" for name in (*TRAIN, TEST)),
    archive=True,
)

Records = npt.NDArray[np.uint8]


def locate(directory: Path) -> Path:
    """The folder with the files: `directory` itself or `cifar-10-batches-bin` in it.

    Raises:
        DataFileError: `directory` is not a directory.
    """
    return folder_of(directory, FOLDER, PUBLISHED.holds)


def download(directory: Path, base: str | None, progress: Progress) -> None:
    """Fetches the archive, if not all of its files are there, and unpacks it; see `fetch`.

    They go to where some of them are, else into `cifar-10-batches-bin` in `directory`.
    """
    here = any(os.path.lexists(stored(directory / name)) for name in PUBLISHED.holds)
    fetch(directory if here else directory / FOLDER, (PUBLISHED,), base or BASE, progress)


def _read(folder: Path, name: str, out: Records) -> None:
    """Reads a file into `out`, shape [records, 3073]."""
    path = stored(folder / f"{name}.bin")
    form = f" ({RECORDS} records of {RECORD} bytes)"
    data = read_whole(path, 1, lambda _: RECORDS * RECORD, form)
    out[...] = np.frombuffer(data, np.uint8).reshape(out.shape)
    check_labels(path, out[:, 0], CLASSES)


def crops_of(records: Records) -> Crops:
    """The images of records, which share their memory."""
    images = records[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE)
    return Crops(images, records[:, 0].astype(np.int32), fingerprint_of(records))


def _crops(folder: Path, *names: str) -> Crops:
    records = np.empty((len(names), RECORDS, RECORD), np.uint8)
    for name, out in zip(names, records, strict=True):
        _read(folder, name, out)
    return crops_of(records.reshape(-1, RECORD))


def _check_all(folder: Path) -> None:
    """Refuses a folder with a part of the training files: training on fewer has to be asked for."""
    paths = {name: stored(folder / f"{name}.bin") for name in TRAIN}
    there = [name for name, path in paths.items() if os.path.lexists(path)]
    missing = next((path for name, path in paths.items() if name not in there), None)
    if there and missing is not None:
        raise DataFileError(f"{missing}: is missing; to train on the files that are there: --data {','.join(there)}")


def load(directory: Path | None, *names: str) -> DataBundle:
    """The training and test images of `directory` or of `cifar-10-batches-bin` in it; see `Crops` for their form.

    Args:
        directory: where the files are.
        names: the training files that are wanted, such as `data_batch_1`; all five if none is named.

    Raises:
        DataFileError: a file is missing or not of the published length, or a label is out of range.
    """
    if directory is None:
        raise DataFileError("CIFAR-10's files: no directory was given")
    folder = locate(directory)
    if not names:
        _check_all(folder)
    train, test = _crops(folder, *(names or TRAIN)), _crops(folder, TEST)
    some = f" of {', '.join(names)}" if names else ""
    text = f"{folder}, {train.examples} images to train on{some} and {test.examples} to test with"
    return DataBundle(train=train, test=test, description=text)


def synthetic(directory: Path | None = None) -> DataBundle:
    """Random images in ten classes for load, and no test set: the same in every process; `directory` is not used."""
    # Raw words: numpy keeps a bit generator's stream for ever, but not what its distributions make of it.
    words = np.random.PCG64(0).random_raw(-(-RECORDS * RECORD // 8))
    records = words.view(np.uint8)[: RECORDS * RECORD].reshape(RECORDS, RECORD)
    records[:, 0] %= CLASSES
    text = f"synthetic, {RECORDS} random images of {SIDE}x{SIDE} in colour"
    return DataBundle(train=crops_of(records), test=None, description=text)
