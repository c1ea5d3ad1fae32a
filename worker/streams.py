"""A worker's own share of a data set that has no random access."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from grpc_ps.client.shared.errors import DataError
from grpc_ps.models import Batch, StreamDataset
from grpc_ps.worker.failures import USERS_OWN, describe_error
from grpc_ps.worker.slots import Fed, Slots


class StreamFeed:
    """The next batch of a worker's share, for whatever number it is asked. Not thread-safe.

    The share goes on where it was when the worker joins its job again.
    """

    def __init__(self, data: StreamDataset, *, batch_size: int, seed: int, share: int) -> None:
        self.share = share
        self._batches = _batches(data, batch_size, seed, share)
        self._name = data.fingerprint
        self._taken = 0
        self._slots = Slots()
        self._ready: Fed | None = None
        self._error: DataError | None = None

    def prepare(self, number: int | None) -> None:
        """Takes the next batch out of the share. An error is kept for `take`: a push is under way meanwhile."""
        if self._ready is not None or self._error is not None:
            return
        try:
            batch = next(self._batches, None)
            self._ready = None if batch is None else self._slots.load(number or 0, batch)
        except USERS_OWN as error:
            where = f"batch {self._taken} of share {self.share}"
            self._error = DataError(f"the data {self._name!r} failed at {where}: {describe_error(error)}")

    @property
    def prepared(self) -> Fed | None:
        """See `Feed`; whatever number comes, this is its batch."""
        return self._ready

    def take(self, number: int) -> Fed | None:
        """The next batch, None if the share is used up.

        Raises:
            DataError: the generator has failed.
        """
        self.prepare(number)
        if self._error is not None:
            raise self._error
        ready, self._ready = self._ready, None
        if ready is None:
            return None
        self._taken += 1
        return replace(ready, number=number)

    def give_back(self, batch: Fed) -> None:
        """See `Feed`: it is the next one of the share, whatever number comes."""
        self._taken -= 1
        self._ready = batch


def shared_out(data: StreamDataset, settings: Mapping[str, Any]) -> StreamDataset:
    """The data of a job with these settings. What knows how to be shared is, among the workers that the job states."""
    among: Callable[[int], StreamDataset] | None = getattr(data, "among", None)
    return data if among is None else among(int(settings.get("workers", 1)) + int(settings.get("backup", 0)))


def _batches(data: StreamDataset, batch_size: int, seed: int, share: int) -> Iterator[Batch]:
    for batch in data.batches(batch_size, seed, share):
        if any(map(len, batch)):
            yield batch
