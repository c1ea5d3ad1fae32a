"""From a batch's number to its examples as tensors.

The seed and the number alone determine a batch, so it does not matter which worker gets it, or how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from grpc_ps.models import Array, Batch, Dataset, EndlessDataset
from grpc_ps.worker.tensors import aligned_array, share

_PIXEL = np.float32(1 / 255)


class Order:
    """The order in which the examples are used: another permutation in each epoch.

    Batch n is part n mod B of epoch n div B, where an epoch has B batches; the last of an epoch may be short.
    Permutations come from the raw words of a bit generator, which numpy keeps the same for ever; a worker with
    another version of numpy must not use another order.
    """

    def __init__(self, *, examples: int, batch_size: int, seed: int) -> None:
        self.examples = examples
        self.batch_size = batch_size
        self.seed = seed
        self.batches = -(-examples // batch_size)
        self._epochs: dict[int, npt.NDArray[np.int64]] = {}

    def indices(self, number: int) -> npt.NDArray[np.int64]:
        """The indices of batch `number`."""
        epoch, part = divmod(number, self.batches)
        start = part * self.batch_size
        return self._permutation(epoch)[start : start + self.batch_size]

    def _permutation(self, epoch: int) -> npt.NDArray[np.int64]:
        found = self._epochs.get(epoch)
        if found is None:
            words = np.random.PCG64([self.seed, epoch]).random_raw(self.examples)
            found = np.argsort(words, kind="stable")
            # Two, because workers straddle the end of an epoch and returned numbers come from the one before.
            self._epochs = {key: self._epochs[key] for key in list(self._epochs)[-1:]} | {epoch: found}
        return found


class Source(Protocol):
    """Gives the examples of a batch."""

    def batch(self, number: int) -> Batch:
        """Features and labels of batch `number`."""


class _Indexed:
    def __init__(self, data: Dataset, order: Order) -> None:
        self._data = data
        self._order = order

    def batch(self, number: int) -> Batch:
        return self._data.take(self._order.indices(number))


class _Endless:
    def __init__(self, data: EndlessDataset, batch_size: int, seed: int) -> None:
        self._data = data
        self._batch_size = batch_size
        self._seed = seed

    def batch(self, number: int) -> Batch:
        return self._data.draw(np.random.Generator(np.random.PCG64([self._seed, number])), self._batch_size)


def source(data: Dataset | EndlessDataset, *, batch_size: int, seed: int) -> Source:
    """The batches of a data set."""
    if isinstance(data, EndlessDataset):
        return _Endless(data, batch_size, seed)
    return _Indexed(data, Order(examples=data.examples, batch_size=batch_size, seed=seed))


@dataclass(frozen=True)
class Fed:
    """A batch as the step takes it."""

    number: int
    examples: int
    features: tf.Tensor
    labels: tf.Tensor


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


class Feed:
    """Batches as tensors; the next one can be prepared while the current one is still in use.

    Two slots take turns, so a batch is valid until the second one after it is prepared. Not thread-safe.
    """

    def __init__(self, batches: Source) -> None:
        self._source = batches
        self._slots: list[_Slot | None] = [None, None]
        self._turn = 0
        self._ready: Fed | None = None

    def prepare(self, number: int | None) -> None:
        """Makes ready the batch that is expected next; None means that none is."""
        if number is not None:
            self._ready = self.take(number)

    def take(self, number: int) -> Fed:
        """The batch of this number, prepared or not."""
        ready, self._ready = self._ready, None
        if ready is not None and ready.number == number:
            return ready
        if ready is not None:
            self._turn ^= 1  # Its slot is used again: the other one may still be in use.
        return self._load(number)

    def _load(self, number: int) -> Fed:
        batch = self._source.batch(number)
        self._turn ^= 1
        slot = self._slots[self._turn]
        if slot is None or not slot.holds(batch):
            slot = self._slots[self._turn] = _Slot(batch)
        features, labels = slot.fill(batch)
        return Fed(number, len(batch[1]), features, labels)


def as_fed(batch: Batch) -> Batch:
    """A batch as arrays of the types that the model gets."""
    features, labels = batch
    scaled: Array = features * _PIXEL if features.dtype == np.uint8 else features
    return scaled, labels
