"""The embedded data set: scikit-learn's 1,797 handwritten digits (UCI), drawn at MNIST's size."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.spec import Array, Batch, DataBundle, DataFileError

_FILE = Path("datasets", "data", "digits.csv.gz")
_EVERY = 6
"""Every sixth image is for testing: the file is ordered by writer, so that every writer is on both sides."""


def _read() -> Batch:
    # Importing scikit-learn takes over a second; finding it and reading its file takes 50 ms.
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise DataFileError("scikit-learn, which holds the embedded digits, is not installed: pip install scikit-learn")
    path = Path(spec.submodule_search_locations[0]) / _FILE
    if not path.is_file():
        raise DataFileError(f"{path}: missing; it holds the embedded digits (scikit-learn 1.3 to 1.9 have it there)")
    table = np.loadtxt(path, delimiter=",", dtype=np.int32)
    return table[:, :64].reshape(-1, 8, 8), table[:, 64]


def draw(images: Array) -> Array:
    """Draws images of 8x8 with ink 0..16 as 28x28 bytes: each pixel three times as large, within a margin of two.

    Returns uint8 of shape [images, 784].
    """
    bytes_of_ink = np.round(np.arange(17) * (255 / 16)).astype(np.uint8)
    large = bytes_of_ink[images].repeat(3, axis=1).repeat(3, axis=2)
    return np.pad(large, ((0, 0), (2, 2), (2, 2))).reshape(len(images), -1)


def load(directory: Path | None = None) -> DataBundle:
    """1,498 images to train on and 299 to test with; `directory` is not used."""
    images, labels = _read()
    pixels, classes = draw(images), labels.astype(np.int32)
    testing = np.arange(len(classes)) % _EVERY == _EVERY - 1
    train = ArrayDataset(pixels[~testing], classes[~testing])
    test = ArrayDataset(pixels[testing], classes[testing])
    text = f"embedded handwritten digits, {train.examples} images to train on and {test.examples} to test with"
    return DataBundle(train=train, test=test, description=text)
