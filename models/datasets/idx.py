"""MNIST in its published format, IDX: four files, gzipped or not, checked whole before any of it is used.

Format (LeCun, Cortes, Burges): big-endian 32-bit words, first 0x00000801 for labels or 0x00000803 for images, then
the extents; then one unsigned byte an element. Fashion-MNIST has the same files.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from grpc_ps.models.datasets import Progress
from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.datasets.download import Published, fetch
from grpc_ps.models.datasets.files import check_labels, folder_of, read_whole, stored
from grpc_ps.models.spec import DataBundle, DataFileError

IMAGES_MAGIC = 0x803
LABELS_MAGIC = 0x801
CLASSES = 10
SIDE = 28
BASE = "https://storage.googleapis.com/cvdf-datasets/mnist"
"""Where the files are published: the CVDF's copy, whose sums are those of the first release."""

_SPLITS = ("train", "t10k")
_NAMES: Mapping[int, str] = MappingProxyType({IMAGES_MAGIC: "images-idx3-ubyte", LABELS_MAGIC: "labels-idx1-ubyte"})
_WHAT: Mapping[int, str] = MappingProxyType({IMAGES_MAGIC: "images", LABELS_MAGIC: "labels"})


def _name(split: str, magic: int) -> str:
    return f"{split}-{_NAMES[magic]}"


def _file(folder: Path, split: str, magic: int) -> Path:
    return stored(folder / _name(split, magic))


def locate(directory: Path) -> Path:
    """The folder with the files: `directory` itself or `mnist` in it.

    Raises:
        DataFileError: `directory` is not a directory.
    """
    return folder_of(directory, "mnist", [_name(split, magic) for split in _SPLITS for magic in _NAMES])


def _published(name: str, size: int, sha256: str) -> Published:
    return Published(name=f"{name}.gz", size=size, sha256=sha256, holds=(name,))


PUBLISHED = (
    _published(
        "train-images-idx3-ubyte", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    _published("train-labels-idx1-ubyte", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    _published("t10k-images-idx3-ubyte", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    _published("t10k-labels-idx1-ubyte", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
)


def download(directory: Path, base: str | None, progress: Progress) -> None:
    """Fetches what is missing of the files into `directory`, or into `mnist` in it where that is; see `fetch`."""
    fetch(locate(directory) if directory.is_dir() else directory, PUBLISHED, base or BASE, progress)


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


def _split(folder: Path, split: str) -> ArrayDataset:
    image_file, label_file = _file(folder, split, IMAGES_MAGIC), _file(folder, split, LABELS_MAGIC)
    images, labels = _read(image_file, IMAGES_MAGIC), _read(label_file, LABELS_MAGIC)[:, 0]
    if len(images) != len(labels):
        raise DataFileError(f"{image_file}: {len(images)} images, but {label_file} has {len(labels)} labels")
    check_labels(label_file, labels, CLASSES)
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
