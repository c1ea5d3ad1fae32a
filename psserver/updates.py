"""What the log's entries do to the values: averages, limits, kernels."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING

from grpc_ps.client.shared.image import Bytes
from grpc_ps.client.shared.process import quiet_stderr
from grpc_ps.psserver.checkpoint import BlockState, CheckpointFiles
from grpc_ps.psserver.clipping import clip_by_value, scale
from grpc_ps.psserver.lead.log import Apply, Pin, Weighted
from grpc_ps.psserver.mean import average
from grpc_ps.psserver.part import Image
from grpc_ps.psserver.plan import Plan
from grpc_ps.psserver.regions import RegionValues, region_values
from grpc_ps.psserver.snapshot import Snapshot
from grpc_ps.psserver.squares import squares

if TYPE_CHECKING:
    from grpc_ps.psserver.store import Store


def load_store(threads: int) -> type[Store]:
    """Imports TensorFlow, which takes seconds, and prepares it."""
    first = "tensorflow" not in sys.modules
    with quiet_stderr():
        from grpc_ps.psserver.store import Store, configure_tensorflow

        configure_tensorflow(threads)
    if first:
        # What TensorFlow made stays. The collector would look at it again and again, and stop every call for 0.1 s.
        gc.collect()
        gc.freeze()
    return Store


class Updates:
    """The store of one job, and what is done to gradients on their way into it.

    Gradients are changed in the memory in which they arrived: the first push of a round becomes the mean. Not guarded:
    the replay calls it, one call at a time, from the event loop or from the thread for large updates.

    Args:
        store_class: what `load_store` returned.
        chunk_bytes: the largest chunk.
    """

    def __init__(self, store_class: Future[type[Store]], chunk_bytes: int) -> None:
        self._store_class = store_class
        self._chunk_bytes = chunk_bytes
        self._plan: Plan
        self._store: Store

    def open(self, plan: Plan, values: Image) -> Snapshot:
        """Takes first values; waits for TensorFlow."""
        self._plan = plan
        first = [RegionValues(value, {}) for value in values.regions]
        self._store = self._store_class.result()(plan.values, first, plan.job.settings)
        return self._read(0)

    def restore(self, plan: Plan, files: CheckpointFiles, name: str, step: int) -> tuple[Snapshot, dict[int, Bytes]]:
        """Takes values and slots of a checkpoint; waits for TensorFlow. Returns what workers had kept back, too.

        Raises:
            CheckpointError: it cannot be read.
        """
        store_class = self._store_class.result()
        self._plan = plan
        blocks = iter(files.read(name, plan.values.blocks, store_class.slots_of(plan.job.settings)))
        first = [region_values(region, list(islice(blocks, len(region.blocks)))) for region in plan.values.regions]
        self._store = store_class(plan.values, first, plan.job.settings, updates=step)
        return self._read(step), files.read_residuals(name, plan.residuals) if plan.push.lossy else {}

    def state(self) -> list[BlockState]:
        """All values and slots as they are now; nothing is copied."""
        return self._store.state()

    def pinned(self, entry: Pin, values: Snapshot) -> Snapshot:
        """What readers of a position get: its values, or averages in their place. Nothing is copied.

        Averages are looked at for readers only: what holds on to them has the next update copy them.
        """
        if not entry.averages:
            return values
        return Snapshot(self._plan.values, self._store.read(averages=True), self._chunk_bytes, entry.step)

    def reduce(self, images: Sequence[Image], pushes: Weighted) -> list[float]:
        """Makes the weighted mean of a round, in the first image; returns the squares of its blocks."""
        average([image.regions for image in images], [weight for _, weight in pushes])
        return squares(self._plan.squared, images[0].buffer)

    def apply(self, images: Sequence[Image], entry: Apply, averaged: bool) -> tuple[Snapshot, str]:
        """Applies the weighted mean of a round; returns the values and the name of one that is not finite, if any.

        Args:
            averaged: `reduce` has made the mean already.
        """
        mean = images[0]
        if not averaged:
            average([image.regions for image in images], [weight for _, weight in entry.pushes])
        self._limit(mean, entry.scales)
        if mean.operands is None:
            mean.operands = self._store.operands(mean.regions)
        self._store.apply(mean.operands, entry.learning_rate)
        snapshot = self._read(entry.step)
        return snapshot, snapshot.non_finite()

    def _limit(self, mean: Image, scales: tuple[float, ...]) -> None:
        """Clips and scales the gradients of what is trainable; deltas of other state stay as they are."""
        limit = self._plan.clip_value
        if limit:
            for region, array in zip(mean.layout.regions, mean.regions, strict=True):
                if region.trainable:
                    clip_by_value(array, limit)
        if scales:
            for factor, array in zip(self._plan.factors(scales), mean.blocks, strict=True):
                scale(array, factor)

    def _read(self, step: int) -> Snapshot:
        plan = self._plan
        return Snapshot(plan.values, self._store.read(), self._chunk_bytes, step, plan.released)
