"""Batches that a program brings, one for each of its steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from grpc_ps.client.shared.errors import DataError
from grpc_ps.models import Batch
from grpc_ps.worker.slots import Fed, Slots


class ProgramData:
    """A `StreamDataset` in name: the job knows that its batches have no numbers."""

    examples = 0
    fingerprint = "fed by the program"

    def batches(self, batch_size: int, seed: int, share: int) -> Iterable[Batch]:
        """None: they come from the program."""
        return ()


class ProgramFeed:
    """A `Feed` of one batch, the same until the next one is put: a step may have to be computed again."""

    prepared = None

    def __init__(self) -> None:
        self._slots = Slots()
        self._batch: Fed | None = None

    def put(self, features: Any, labels: Any) -> None:
        """Takes a batch, of arrays or tensors.

        Raises:
            DataError: it is no batch, or not formed as those before; the one before stays.
        """
        try:
            self._batch = self._slots.load(0, (np.asarray(features), np.asarray(labels)))
        except ValueError as error:
            raise DataError(f"run_step: {error}") from error

    def prepare(self, number: int | None) -> None:
        """Nothing: who knows what comes next."""

    def take(self, number: int) -> Fed:
        """The program's batch under this number."""
        assert self._batch is not None, "a step is asked for with a batch"
        return replace(self._batch, number=number)

    def give_back(self, batch: Fed) -> None:
        """Nothing: it stays until the program puts another one."""
