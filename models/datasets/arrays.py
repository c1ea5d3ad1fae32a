"""Examples that are held in memory."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from grpc_ps.models.spec import Array, Batch


def fingerprint_of(*arrays: Array) -> str:
    """A hash of types, shapes and contents, which have to lie in a row."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape} ".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]


class ArrayDataset:
    """Features and labels as two arrays with one row an example; never written to.

    The fingerprint is a hash of types, shapes and contents, so it does not depend on where the data came from.
    """

    def __init__(self, features: Array, labels: Array) -> None:
        if len(features) != len(labels) or len(labels) == 0:
            raise ValueError(f"{len(features)} features and {len(labels)} labels")
        self.features = np.ascontiguousarray(features)
        self.labels = np.ascontiguousarray(labels)
        self.examples = len(labels)
        self.fingerprint = fingerprint_of(self.features, self.labels)

    def take(self, indices: npt.NDArray[np.int64]) -> Batch:
        """Copies of the examples at `indices`. Raises IndexError outside 0..examples-1."""
        return self.features.take(indices, axis=0), self.labels.take(indices, axis=0)
