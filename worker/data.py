"""From a batch's number to its examples as tensors.

The seed and the number alone determine a batch, so it does not matter which worker gets it, or how many there are.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.errors import DataError
from grpc_ps.models import AugmentedDataset, Batch, Dataset, EndlessDataset
from grpc_ps.worker.failures import USERS_OWN, describe_error
from grpc_ps.worker.slots import Fed, Slots

# Tells apart what is drawn for one number: the order of an epoch has that number and the seed alone.
_AUGMENTATION = 1


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


class _Augmented:
    def __init__(self, data: AugmentedDataset, order: Order) -> None:
        self._data = data
        self._order = order

    def batch(self, number: int) -> Batch:
        generator = np.random.Generator(np.random.PCG64([self._order.seed, number, _AUGMENTATION]))
        return self._data.augment(self._order.indices(number), generator)


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
    order = Order(examples=data.examples, batch_size=batch_size, seed=seed)
    return _Augmented(data, order) if isinstance(data, AugmentedDataset) else _Indexed(data, order)


class Feed(Protocol):
    """Batches as tensors; the next one can be prepared while the current one is still in use."""

    def prepare(self, number: int | None) -> None:
        """Makes ready the batch that is expected next; None if it is not known which one that is."""

    @property
    def prepared(self) -> Fed | None:
        """The batch that is ready, and still to be taken; None if there is none."""

    def take(self, number: int) -> Fed | None:
        """The batch for this number, prepared or not; None if the worker's data is used up."""

    def give_back(self, batch: Fed) -> None:
        """The batch that was taken last comes to nothing, and no other has been prepared since: it is to come again."""


class NumberedFeed:
    """Batches that their numbers determine. Not thread-safe."""

    def __init__(self, batches: Source) -> None:
        self._source = batches
        self._slots = Slots()
        self._ready: Fed | None = None

    def prepare(self, number: int | None) -> None:
        """See `Feed`."""
        if number is not None:
            self._ready = self.take(number)

    @property
    def prepared(self) -> Fed | None:
        """See `Feed`."""
        return self._ready

    def take(self, number: int) -> Fed:
        """See `Feed`: there always is one.

        Raises:
            DataError: the data set has failed.
        """
        ready, self._ready = self._ready, None
        if ready is not None and ready.number == number:
            return ready
        if ready is not None:
            self._slots.put_back()
        try:
            return self._slots.load(number, self._source.batch(number))
        except USERS_OWN as error:
            raise DataError(f"the data failed at batch {number}: {describe_error(error)}") from error

    def give_back(self, batch: Fed) -> None:
        """See `Feed`."""
        self._ready = batch
