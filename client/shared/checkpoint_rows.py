"""Rows of tables in a checkpoint: each part has the ids of those that its shard held, their values and their slots.

In a part they are pieces of the table under names of their own (`rows_slot`): `slots/rows.ids/emb[0:500]` has 500 ids,
`slots/rows.values/emb[0:32000]` their values of 64 columns, `slots/rows.slot.accumulator/emb[0:32000]` a slot.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.checkpoint import CheckpointReader
from grpc_ps.client.shared.checkpoint_format import IDS, VALUES, rows_slot
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.image import numpy_dtype
from grpc_ps.client.shared.rows import Array, Ids, Rows

PIECE_ROWS = 1 << 16
"""Rows that are read at a time."""


@dataclass(frozen=True)
class StoredRows:
    """The rows of one table in one part.

    Attributes:
        count: how many they are.
        slots: names of their slots.
    """

    spec: ParameterSpec
    count: int
    slots: tuple[str, ...]
    _reader: CheckpointReader
    _part: int
    _parts: int

    def ids(self, start: int, stop: int) -> Ids:
        """Reads the ids of some of them, by their order in the part. Raises CheckpointError."""
        out = np.empty(stop - start, np.int64)
        self._reader.read_in_part(self._part, self.spec.name, rows_slot(IDS), start, stop, out)
        return out

    def values(self, start: int, stop: int, slot: str = VALUES) -> Array:
        """Reads the values, or a slot, of the same, shape [n, dim]. Raises CheckpointError."""
        dim = self.spec.shape[1]
        out = np.empty((stop - start, dim), numpy_dtype(self.spec.dtype))
        self._reader.read_in_part(self._part, self.spec.name, rows_slot(slot), start * dim, stop * dim, out)
        return out

    def may_be_of(self, shard: int, shard_count: int) -> bool:
        """Whether it may have rows of a shard, of so many: row r is in part r mod P, and on shard r mod S."""
        return (self._part - shard) % math.gcd(self._parts, shard_count) == 0

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Cuts them into what is read at a time."""
        for start in range(0, self.count, PIECE_ROWS):
            yield start, min(start + PIECE_ROWS, self.count)


def stored_rows(reader: CheckpointReader, spec: ParameterSpec) -> list[StoredRows]:
    """Returns what each part has of a table.

    Raises:
        CheckpointError: a part has ids and values that do not fit.
    """
    found = []
    every = reader.sizes(spec.name)
    for part, sizes in enumerate(every):
        rows = {slot: size for name, size in sizes.items() if (slot := _slot(name)) is not None}
        count = rows.pop(IDS, 0)
        if VALUES not in rows or any(size != count * spec.shape[1] for size in rows.values()):
            raise CheckpointError(f"{reader.path}: part {part} has not the values of its rows of table {spec.name}")
        found.append(StoredRows(spec, count, tuple(sorted(rows.keys() - {VALUES})), reader, part, len(every)))
    return found


def _slot(name: str) -> str | None:
    prefix = rows_slot("")
    return name.removeprefix(prefix) if name.startswith(prefix) else None


def whole_table(reader: CheckpointReader, spec: ParameterSpec) -> Rows:
    """Reads a table: the ids that are there, rising, and their values. Raises CheckpointError."""
    parts = stored_rows(reader, spec)
    ids = np.concatenate([np.empty(0, np.int64), *(part.ids(0, part.count) for part in parts)])
    values = np.empty((len(ids), spec.shape[1]), numpy_dtype(spec.dtype))
    at = 0
    for part in parts:
        for start, stop in part.pieces():
            values[at + start : at + stop] = part.values(start, stop)
        at += part.count
    order = np.argsort(ids, kind="stable")
    return Rows(ids[order], values[order])


def problem_of_rows(reader: CheckpointReader, spec: ParameterSpec) -> str:
    """Says what is missing of a table, or there twice, or in another part than that of its shard; empty if nothing is.

    Of a lazy one any rows may be there.
    """
    try:
        by_part = [part.ids(0, part.count) for part in stored_rows(reader, spec)]
    except CheckpointError as error:
        return str(error).removeprefix(f"{reader.path}: ")
    if astray := [part for part, ids in enumerate(by_part) if (ids % len(by_part) != part).any()]:
        return f"has rows of table {spec.name} in part {astray[0]} that are another part's"
    ids = np.sort(np.concatenate([np.empty(0, np.int64), *by_part]))
    rows, lazy = spec.shape[0], spec.table is not None and spec.table.lazy
    once = not ids.size or (ids[0] >= 0 and ids[-1] < rows and bool((ids[1:] > ids[:-1]).all()))
    return "" if once and (lazy or len(ids) == rows) else f"has not every row of table {spec.name} once"
