"""One table's rows and slots on this shard, in memory that grows with what is held, and views of one position."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping

import numpy as np

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import Full, UsageError
from grpc_ps.client.shared.rows import Array, Ids, first_values
from grpc_ps.psserver.pages import paged_buffer
from grpc_ps.psserver.row_index import Places, RowIndex, TouchedIndex, WholeIndex

VALUES = ""
"""The name of a table's values beside those of its slots."""

_FIRST_ROWS = 1024


class TableMemory:
    """The rows of one table that this shard holds: all of them, or those that were updated.

    `places` and `write` are called by whoever applies updates, one call at a time; views may be read in any thread.
    `_lock` guards the index and the arrays against a view that is read meanwhile.

    Attributes:
        spec: the table.
        capacity: rows that it may come to hold by updates; 0 means all.
        slots: by name what a row's slot begins with.

    Args:
        seed: the job's.
        shard, shard_count: which rows are this shard's.
    """

    def __init__(
        self, spec: ParameterSpec, slots: Mapping[str, float], *, seed: int, shard: int, shard_count: int
    ) -> None:
        rows, self._dim = spec.shape
        table = spec.table
        self.spec = spec
        self._lazy = table is not None and table.lazy
        self.capacity = table.capacity if table is not None else 0
        self._shard = shard
        self._seed = seed
        self.slots = dict(slots)
        self._index: RowIndex = TouchedIndex() if self._lazy else WholeIndex(rows, shard, shard_count)
        self._lock = threading.Lock()
        self._views: weakref.WeakSet[TableView] = weakref.WeakSet()
        room = _FIRST_ROWS if self._lazy else self._index.held
        self._arrays = {name: self._room(room) for name in (VALUES, *slots)}
        if not self._lazy:
            self._begin_rows(0, room)

    def _room(self, rows: int) -> Array:
        return paged_buffer(rows * self._dim * 4).view(np.float32).reshape(rows, self._dim)

    def _begin_rows(self, start: int, stop: int) -> None:
        first_values(self.spec, self._seed, self._index.ids(start, stop), self._arrays[VALUES][start:stop])
        for name, first in self.slots.items():
            if first:
                self._arrays[name][start:stop] = first

    @property
    def held(self) -> int:
        """Rows that there is memory for."""
        return self._index.held

    @property
    def nbytes(self) -> int:
        """Bytes of their values and slots."""
        return self.held * self._dim * 4 * len(self._arrays)

    def read(self, ids: Ids, out: Array) -> None:
        """Writes the values of those rows as they are now into an array of shape [n, dim]. Nothing is held for it."""
        self.take(VALUES, self._index.find(ids), out, ids)

    def places(self, ids: Ids) -> Places:
        """Where those rows are; such as are not held yet get memory, and what they begin with.

        Raises:
            UsageError: a lazy table would have more rows than its capacity.
            Full: there is no memory.
        """
        before = self.held
        places = self._places(ids)
        if self.capacity and self.held > max(before, self.capacity):
            raise UsageError(
                f"table {self.spec.name}: {self.held} rows are touched on shard {self._shard}, its capacity is"
                f" {self.capacity}: give the model's Table a larger `capacity`, or use more shards"
            )
        return places

    def _places(self, ids: Ids) -> Places:
        before = self.held
        with self._lock:
            places = self._index.add(ids)
        if self.held > before:
            self._make_room(before)
        return places

    def _make_room(self, before: int) -> None:
        held = self.held
        room = len(self._arrays[VALUES])
        if held > room:
            try:
                self._move(max(held, 2 * room), before)
            except MemoryError:
                raise Full(f"table {self.spec.name}: no memory for {held} rows on this shard") from None
        self._begin_rows(before, held)

    def _move(self, room: int, rows: int) -> None:
        for name, array in self._arrays.items():
            larger = self._room(room)
            larger[:rows] = array[:rows]
            with self._lock:
                self._arrays[name] = larger

    def take(self, name: str, places: Places, out: Array, ids: Ids | None = None) -> None:
        """Writes what is at those places into an array; where a place is -1 the first value of that id."""
        # "clip" spares NumPy a copy; a place of -1 reads a row that is replaced.
        np.take(self._arrays[name], places, axis=0, out=out, mode="clip")
        if ids is not None and self._lazy and (missing := np.flatnonzero(places < 0)).size:
            out[missing] = first_values(self.spec, self._seed, ids[missing])

    def write(self, places: Places, rows: Mapping[str, Array]) -> None:
        """Replaces rows of the values, and of each slot that is given. Views keep what was there."""
        with self._lock:
            for view in self._views:
                view.keep(places)
            for name, array in rows.items():
                _put(self._arrays[name], places, array)

    def restore(self, ids: Ids, name: str, rows: Array) -> None:
        """Takes rows of a checkpoint, of the values or of a slot. Those that are there count for no capacity."""
        places = self._places(ids)
        _put(self._arrays[name], places, rows)

    def view(self, *, slots: bool = False) -> TableView:
        """What is there now, for as long as anybody keeps it; with the slots, if asked for."""
        view = TableView(self, tuple(self._arrays) if slots else (VALUES,))
        with self._lock:
            self._views.add(view)
        return view


def _put(array: Array, places: Places, rows: Array) -> None:
    """Does array[places] = rows; NumPy copies elements that are whole rows several times faster."""
    whole = f"V{array.itemsize * array.shape[1]}"
    array.view(whole).reshape(-1)[places] = np.ascontiguousarray(rows).view(whole).reshape(-1)


class TableView:
    """A table as it was at one position. It costs no copy but of rows that are updated while it is there.

    Attributes:
        names: what can be read: values, and slots.
        held: rows that the shard held then.
    """

    def __init__(self, table: TableMemory, names: tuple[str, ...]) -> None:
        self.names = names
        self.held = table.held
        self._table = table
        # For each row one more than where its copy is; zero, and no memory, where it has none.
        self._copy_of = paged_buffer(self.held * 4).view(np.uint32)
        self._kept = 0
        self._copies: dict[str, Array] = {name: np.empty((0, table.spec.shape[1]), np.float32) for name in names}

    @property
    def spec(self) -> ParameterSpec:
        """The table."""
        return self._table.spec

    def keep(self, places: Places) -> None:
        """Copies what is about to be replaced. With the table's lock."""
        old = places[places < self.held]
        new = old[self._copy_of[old] == 0]
        kept, self._kept = self._kept, self._kept + len(new)
        self._copy_of[new] = np.arange(kept + 1, self._kept + 1, dtype=np.uint32)
        for name, copies in self._copies.items():
            if self._kept > len(copies):
                self._copies[name] = larger = np.empty((max(self._kept, 2 * len(copies)), copies.shape[1]), np.float32)
                larger[:kept] = copies[:kept]
            self._copies[name][kept : self._kept] = self._table._arrays[name][new]

    def ids(self, start: int, stop: int) -> Ids:
        """The ids of rows by their places."""
        with self._table._lock:
            return self._table._index.ids(start, stop)

    def at(self, start: int, stop: int, name: str = VALUES) -> Array:
        """A copy of the rows at those places."""
        with self._table._lock:
            rows = self._table._arrays[name][start:stop].copy()
            self._put_back(self._copy_of[start:stop], name, rows)
        return rows

    def read(self, ids: Ids) -> Array:
        """The values of those rows, held or not."""
        table, rows = self._table, np.empty((len(ids), self.spec.shape[1]), np.float32)
        with table._lock:
            places = table._index.find(ids)
            places = np.where(places < self.held, places, -1)
            table.take(VALUES, places, rows, ids)
            held = np.flatnonzero(places >= 0)
            copied = np.zeros(len(ids), np.uint32)
            copied[held] = self._copy_of[places[held]]
            self._put_back(copied, VALUES, rows)
        return rows

    def _put_back(self, copied: Array, name: str, rows: Array) -> None:
        replaced = np.flatnonzero(copied)
        rows[replaced] = self._copies[name][copied[replaced].astype(np.int64) - 1]
