"""From a row's id to its place in a shard's memory: by arithmetic, or by a hash table of what is held. Pure."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.rows import Ids, rows_on_shard

Places = npt.NDArray[np.int64]

_FIRST_SLOTS = 1024
# Multiplies ids so that neighbours spread (Knuth's multiplicative hashing, with 2^64 / the golden ratio).
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class RowIndex(Protocol):
    """Where rows are. Ids are distinct, and all of this shard.

    Attributes:
        held: rows that there is memory for; their places are those below.
    """

    held: int

    def find(self, ids: Ids) -> Places:
        """The place of each; -1 for a row that is not held."""

    def add(self, ids: Ids) -> Places:
        """The same, with new places, in order, for those that are not held."""

    def ids(self, start: int, stop: int) -> Ids:
        """The ids of the rows at those places."""


class WholeIndex:
    """All rows of this shard, in order."""

    def __init__(self, rows: int, shard: int, shard_count: int) -> None:
        self.held = rows_on_shard(rows, shard, shard_count)
        self._shard = shard
        self._shard_count = shard_count

    def find(self, ids: Ids) -> Places:
        """See `RowIndex`: all are held."""
        return ids if self._shard_count == 1 else ids // self._shard_count

    def add(self, ids: Ids) -> Places:
        """See `RowIndex`: there are no new ones."""
        return self.find(ids)

    def ids(self, start: int, stop: int) -> Ids:
        """See `RowIndex`."""
        return np.arange(start, stop, dtype=np.int64) * self._shard_count + self._shard


class TouchedIndex:
    """Those rows that were added, in the order in which they were: a hash table with open addressing.

    It is at most half full, so that a search takes two looks on average; each look is one of NumPy's for all ids that
    are still searched.
    """

    def __init__(self) -> None:
        self.held = 0
        self._ids = np.empty(_FIRST_SLOTS // 2, np.int64)
        self._reset(_FIRST_SLOTS)

    def _reset(self, slots: int) -> None:
        self._places = np.full(slots, -1, np.int64)
        self._shift = np.uint64(64 - (slots.bit_length() - 1))

    def _slots(self, ids: Ids) -> npt.NDArray[np.int64]:
        return (ids.view(np.uint64) * _SPREAD >> self._shift).view(np.int64)

    def find(self, ids: Ids) -> Places:
        """See `RowIndex`."""
        ids = np.ascontiguousarray(ids)
        found = np.full(len(ids), -1, np.int64)
        left, slots = np.arange(len(ids)), self._slots(ids)
        while left.size:
            places = self._places[slots]
            right = (places >= 0) & (self._ids[places] == ids[left])
            found[left[right]] = places[right]
            on = (places >= 0) & ~right
            left, slots = left[on], (slots[on] + 1) & (len(self._places) - 1)
        return found

    def add(self, ids: Ids) -> Places:
        """See `RowIndex`."""
        places = self.find(ids)
        new = np.flatnonzero(places < 0)
        if new.size:
            places[new] = np.arange(self.held, self.held + new.size)
            self._grow(self.held + new.size)
            self._ids[self.held : self.held + new.size] = ids[new]
            self._enter(ids[new], places[new])
            self.held += new.size
        return places

    def _grow(self, held: int) -> None:
        if held > len(self._ids):
            room = np.empty(max(held, 2 * len(self._ids)), np.int64)
            room[: self.held] = self._ids[: self.held]
            self._ids = room
        slots = len(self._places)
        while slots < 2 * held:
            slots *= 2
        if slots > len(self._places):
            self._reset(slots)
            self._enter(self._ids[: self.held], np.arange(self.held))

    def _enter(self, ids: Ids, places: Places) -> None:
        """Writes each place into the first free slot from its id's on; of several that meet at one the last has it."""
        slots = self._slots(np.ascontiguousarray(ids))
        while places.size:
            free = self._places[slots] < 0
            self._places[slots[free]] = places[free]
            on = self._places[slots] != places
            places, slots = places[on], (slots[on] + 1) & (len(self._places) - 1)

    def ids(self, start: int, stop: int) -> Ids:
        """See `RowIndex`."""
        return self._ids[start:stop].copy()
