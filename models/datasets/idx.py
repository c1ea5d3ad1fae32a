"""MNIST in its published format, IDX: four files, gzipped or not, checked whole before any of it is used.

Format (LeCun, Cortes, Burges): big-endian 32-bit words, first 0x00000801 for labels or 0x00000803 for images, then
the extents; then one unsigned byte an element. Fashion-MNIST has the same files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.datasets.files import read_whole
from grpc_ps.models.spec import DataBundle, DataFileError

IMAGES_MAGIC = 0x803
LABELS_MAGIC = 0x801
CLASSES = 10
SIDE = 28
_SPLITS = ("train", "t10k")
_NAMES: Mapping[int, str] = MappingProxyType({IMAGES_MAGIC: "images-idx3-ubyte", LABELS_MAGIC: "labels-idx1-ubyte"})
_WHAT: Mapping[int, str] = MappingProxyType({IMAGES_MAGIC: "images", LABELS_MAGIC: "labels"})


def _file(folder: Path, split: str, magic: int) -> Path:
    """The file, plain or gzipped; the plain name wins if there are both, the gzipped one is named if there is none."""
    plain = folder / f"{split}-{_NAMES[magic]}"
    return plain if os.path.lexists(plain) else plain.with_name(plain.name + ".gz")


def locate(directory: Path) -> Path:
    """The folder with the files: `directory` itself or `mnist` in it.

    Raises:
        DataFileError: `directory` is not a directory.
    """
    if not directory.is_dir():
        raise DataFileError(f"{directory}: {'is not' if directory.exists() else 'there is no such'} directory")
    inner = directory / "mnist"
    here = any(os.path.lexists(_file(directory, split, magic)) for split in _SPLITS for magic in _NAMES)
    return inner if inner.is_dir() and not here else directory


def _extents(path: Path, header: bytes, magic: int) -> tuple[int, ...]:
    found, *extents = struct.unpack(f">{len(header) // 4}I", header)
    if found != magic:
        other = f" ({_WHAT[found]})" if found in _WHAT else ""
        text = f"begins with 0x{found:08x}{other}, expected 0x{magic:08x} ({_WHAT[magic]} in IDX format)"
        raise DataFileError(f"{path}: {text}")
    if extents[0] == 0:
        raise DataFileError(f"{path}: holds no {_WHAT[magic]}")
    if extents[1:] and extents[1:] != [SIDE, SIDE]:
        raise DataFileError(f"{path}: images of {extents[1]}x{extents[2]}, expected {SIDE}x{SIDE}")
    return tuple(extents)


def _read(path: Path, magic: int) -> npt.NDArray[np.uint8]:
    """One file: the elements after the header, one row an example, sharing the memory of what was read."""
    header = 16 if magic == IMAGES_MAGIC else 8
    data = read_whole(path, header, lambda words: header + int(np.prod(_extents(path, words, magic), dtype=object)))
    count = _extents(path, data[:header], magic)[0]
    return np.frombuffer(data, np.uint8, offset=header).reshape(count, -1)


def _check_labels(path: Path, labels: npt.NDArray[np.uint8]) -> None:
    wrong = np.flatnonzero(labels >= CLASSES)
    if len(wrong):
        record, value = int(wrong[0]), int(labels[wrong[0]])
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        counted = f"record {record} (counted from 0)"
        raise DataFileError(f"{path}: label {value} in {counted}{more}, allowed are 0 to {CLASSES - 1}")


def _split(folder: Path, split: str) -> ArrayDataset:
    image_file, label_file = _file(folder, split, IMAGES_MAGIC), _file(folder, split, LABELS_MAGIC)
    images, labels = _read(image_file, IMAGES_MAGIC), _read(label_file, LABELS_MAGIC)[:, 0]
    if len(images) != len(labels):
        raise DataFileError(f"{image_file}: {len(images)} images, but {label_file} has {len(labels)} labels")
    _check_labels(label_file, labels)
    return ArrayDataset(images, labels.astype(np.int32))


def load(directory: Path | None) -> DataBundle:
    """The training and test images of `directory` or of `mnist` in it, as bytes of shape [examples, 784].

    Raises:
        DataFileError: a file is missing or not exactly what it declares, counts differ, or a label is out of range.
    """
    if directory is None:
        raise DataFileError("IDX files: no directory was given")
    folder = locate(directory)
    train, test = (_split(folder, split) for split in _SPLITS)
    text = f"{folder}, {train.examples} images to train on and {test.examples} to test with"
    return DataBundle(train=train, test=test, description=text)
