"""What the log's entries do to the values: averages, limits, kernels."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING

from grpc_ps.client.shared.image import Bytes, aligned_buffer
from grpc_ps.client.shared.process import importing_tensorflow
from grpc_ps.client.shared.rows import Rows, values_bytes, view_values
from grpc_ps.psserver.checkpoint import BlockState, CheckpointFiles
from grpc_ps.psserver.clipping import clip_by_value, scale
from grpc_ps.psserver.lead.log import Apply, Pin, Weighted
from grpc_ps.psserver.mean import average
from grpc_ps.psserver.part import Image
from grpc_ps.psserver.plan import Plan
from grpc_ps.psserver.regions import RegionValues, region_values
from grpc_ps.psserver.row_gradients import average_rows, limit_rows, squares_of_tables
from grpc_ps.psserver.snapshot import Outbound, Snapshot, WithRows
from grpc_ps.psserver.squares import squares
from grpc_ps.psserver.table_memory import TableMemory, TableView
from grpc_ps.psserver.tail import Wanted

if TYPE_CHECKING:
    from grpc_ps.psserver.sparse import Tables
    from grpc_ps.psserver.store import Store


def load_store(threads: int) -> type[Store]:
    """Imports TensorFlow, which takes seconds, and prepares it."""
    first = "tensorflow" not in sys.modules
    with importing_tensorflow():
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
        self._tables: Tables | None = None
        self._rows: list[Rows] = []

    def open(self, plan: Plan, values: Image) -> Snapshot:
        """Takes first values; waits for TensorFlow."""
        self._plan = plan
        first = [RegionValues(value, {}) for value in values.regions]
        self._store = self._store_class.result()(plan.values, first, plan.job.settings)
        self._open_tables(plan)
        return self._read(0)

    def _open_tables(self, plan: Plan, updates: int = 0) -> None:
        tables = plan.tables
        if tables.specs:
            from grpc_ps.psserver.sparse import Tables

            self._tables = Tables(tables.specs, plan.job.settings, tables.shard, tables.shard_count, updates)

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
        self._open_tables(plan, step)
        if self._tables is not None:
            files.read_tables(name, self._tables.memory, plan.tables)
        return self._read(step), files.read_residuals(name, plan.residuals) if plan.push.lossy else {}

    def state(self) -> list[BlockState]:
        """All values and slots as they are now; nothing is copied."""
        return self._store.state()

    def views(self, *, slots: bool = False) -> list[TableView]:
        """Every table as it is now, with its slots if asked for; nothing is copied."""
        return [memory.view(slots=slots) for memory in self._tables.memory] if self._tables is not None else []

    @property
    def tables(self) -> Sequence[TableMemory]:
        """Every table; none before the job is open."""
        return self._tables.memory if self._tables is not None else ()

    def with_rows(self, release: Snapshot, wanted: Wanted) -> Outbound:
        """A release with the rows that its worker wants behind it: copies of them as they are now."""
        memory, specs = self._tables.memory if self._tables is not None else [], self._plan.tables.specs
        counts = tuple(len(ids) for ids in wanted.ids)
        buffer = aligned_buffer(values_bytes(specs, counts))
        for table, ids, out in zip(memory, wanted.ids, view_values(specs, counts, buffer), strict=True):
            table.read(ids, out)
        return WithRows(release, buffer, counts, self._chunk_bytes)

    def pinned(self, entry: Pin, values: Snapshot) -> Snapshot:
        """What readers of a position get: its values, or averages in their place. Nothing is copied.

        Averages are looked at for readers only: what holds on to them has the next update copy them.
        """
        if not entry.averages:
            return values
        return Snapshot(self._plan.values, self._store.read(averages=True), self._chunk_bytes, entry.step)

    def reduce(self, images: Sequence[Image], pushes: Weighted) -> list[float]:
        """Makes the weighted mean of a round, in the first image; returns the squares of its blocks."""
        self._average(images, pushes)
        found = squares(self._plan.squared, images[0].buffer)
        return [*found, *squares_of_tables(self._rows)] if self._plan.clips_norm else found

    def _average(self, images: Sequence[Image], pushes: Weighted) -> None:
        weights = [weight for _, weight in pushes]
        average([image.regions for image in images], weights)
        rows = [image.tail.rows for image in images if image.tail is not None]
        self._rows = [average_rows(of_table, weights) for of_table in zip(*rows, strict=True)]

    def apply(self, images: Sequence[Image], entry: Apply, averaged: bool) -> tuple[Snapshot, str]:
        """Applies the weighted mean of a round; returns the values and the name of one that is not finite, if any.

        Args:
            averaged: `reduce` has made the mean already.
        """
        mean = images[0]
        if not averaged:
            self._average(images, entry.pushes)
        self._limit(mean, entry.scales)
        if mean.operands is None:
            mean.operands = self._store.operands(mean.regions)
        self._store.apply(mean.operands, entry.learning_rate)
        bad = self._tables.apply(self._rows, entry.learning_rate) if self._tables is not None else ""
        self._rows = []
        snapshot = self._read(entry.step)
        return snapshot, snapshot.non_finite() or bad

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
        for factor, rows in zip(self._plan.table_factors(scales), self._rows, strict=True):
            limit_rows(rows, limit, factor)

    def _read(self, step: int) -> Snapshot:
        plan = self._plan
        return Snapshot(plan.values, self._store.read(), self._chunk_bytes, step, plan.released)
