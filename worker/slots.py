"""Batches as tensors, in memory that is used again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from grpc_ps.models import Array, Batch
from grpc_ps.worker.tensors import aligned_array, share

_PIXEL = np.float32(1 / 255)

Kind: TypeAlias = tuple[np.dtype[Any], tuple[int, ...], np.dtype[Any], tuple[int, ...]]
"""Types and shapes of one example's features and label."""


@dataclass(frozen=True)
class Fed:
    """A batch as the step takes it. `loading` tells apart what was in the same memory, and so has the same tensors."""

    number: int
    examples: int
    features: tf.Tensor
    labels: tf.Tensor
    loading: int = 0


class _Slot:
    """Memory for one batch, shared with tensors that are made once."""

    def __init__(self, batch: Batch) -> None:
        features, labels = batch
        self._pixels = features.dtype == np.uint8
        self._features = aligned_array(features.shape, np.dtype(np.float32) if self._pixels else features.dtype)
        self._labels = aligned_array(labels.shape, labels.dtype)
        self._whole = self._tensors(len(labels))

    def _tensors(self, count: int) -> tuple[tf.Tensor, tf.Tensor] | None:
        made = share(self._features[:count]), share(self._labels[:count])
        return None if made[0] is None or made[1] is None else made

    def holds(self, batch: Batch) -> bool:
        """Whether the memory is large enough: a short batch may have been the first."""
        return len(batch[1]) <= len(self._labels)

    def fill(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Copies a batch in, pixels as float32 in [0, 1]."""
        features, labels = batch
        count = len(labels)
        if self._pixels:
            np.multiply(features, _PIXEL, out=self._features[:count])
        else:
            self._features[:count] = features
        self._labels[:count] = labels
        shared = self._whole if count == len(self._labels) else self._tensors(count)
        return shared or (tf.convert_to_tensor(self._features[:count]), tf.convert_to_tensor(self._labels[:count]))


class Slots:
    """Memory for batches: two slots that take turns, so a batch is valid until the second one after it is loaded."""

    def __init__(self) -> None:
        self._slots: list[_Slot | None] = [None, None]
        self._turn = 0
        self._loadings = 0
        self._kind: Kind | None = None

    def load(self, number: int, batch: Batch) -> Fed:
        """Copies a batch into the slot whose turn it is.

        Raises:
            ValueError: it is no batch, or its examples are not shaped as those before.
        """
        batch = checked(batch)
        self._check_kind(batch)
        self._turn ^= 1
        slot = self._slots[self._turn]
        if slot is None or not slot.holds(batch):
            slot = self._slots[self._turn] = _Slot(batch)
        features, labels = slot.fill(batch)
        self._loadings += 1
        return Fed(number, len(batch[1]), features, labels, self._loadings)

    def _check_kind(self, batch: Batch) -> None:
        """What the step was traced for is the first batch; memory of the wrong kind would also be broadcast into."""
        features, labels = batch
        kind = features.dtype, features.shape[1:], labels.dtype, labels.shape[1:]
        self._kind = self._kind or kind
        if kind != self._kind:
            raise ValueError(f"a batch of {_shown(kind)} after others of {_shown(self._kind)}")

    def put_back(self) -> None:
        """Lets the slot that was filled last be filled again: its batch is not used, and the other one may still be."""
        self._turn ^= 1


def _shown(kind: Kind) -> str:
    features, feature_shape, labels, label_shape = kind
    return f"features {features.name}{list(feature_shape)} and labels {labels.name}{list(label_shape)}"


def checked(batch: Batch) -> Batch:
    """Features and labels as arrays.

    Raises:
        ValueError: they are not two, or not of one length, or have no examples.
    """
    features, labels = (np.asarray(part) for part in batch)
    lengths = [part.shape[0] if part.ndim else None for part in (features, labels)]
    if lengths[0] != lengths[1] or not lengths[0]:
        raise ValueError(f"a batch has features of shape {features.shape} and labels of shape {labels.shape}")
    return features, labels


def as_fed(batch: Batch) -> Batch:
    """A batch as arrays of the types that the model gets."""
    features, labels = batch
    scaled: Array = features * _PIXEL if features.dtype == np.uint8 else features
    return scaled, labels
