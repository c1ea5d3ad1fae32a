"""Rows of tables on their way into a checkpoint, copied a piece at a time, and out of one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grpc_ps.client.shared.checkpoint_format import IDS, Piece, rows_slot
from grpc_ps.client.shared.checkpoint_format import VALUES as STORED_VALUES
from grpc_ps.client.shared.checkpoint_part import Bytes
from grpc_ps.client.shared.checkpoint_rows import StoredRows
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.rows import PIECE_ELEMENTS
from grpc_ps.psserver.finite import all_finite
from grpc_ps.psserver.table_memory import VALUES, TableMemory, TableView
from grpc_ps.psserver.tail import ShardTables


class ViewBytes:
    """The bytes of a table's values, or of a slot, as they were at one position: a slice of them is a copy."""

    def __init__(self, view: TableView, name: str) -> None:
        self._view = view
        self._name = name
        self._row = view.spec.shape[1] * 4
        self.nbytes = view.held * self._row

    def __getitem__(self, span: slice) -> memoryview:
        """See `checkpoint_part.Bytes`."""
        start, stop, _ = span.indices(self.nbytes)
        first, last = start // self._row, -(-stop // self._row)
        data = self._view.at(first, last, self._name).reshape(-1).view(np.uint8).data
        return data[start - first * self._row : stop - first * self._row]


def row_pieces(view: TableView) -> Iterator[tuple[Piece, Bytes]]:
    """What a part has of a table: ids, values and slots."""
    spec, held = view.spec, view.held
    ids = view.ids(0, held).view(np.uint8).data
    yield Piece(spec.name, rows_slot(IDS), 0, held, "int64"), ids
    for name in view.names:
        slot = rows_slot(_stored(name))
        yield Piece(spec.name, slot, 0, held * spec.shape[1], spec.dtype), ViewBytes(view, name)


def _stored(name: str) -> str:
    return STORED_VALUES if name == VALUES else f"slot.{name}"


def non_finite_slot(view: TableView) -> str:
    """Returns the name of a slot with a NaN or an infinity, or nothing. Read a piece at a time."""
    step = max(1, PIECE_ELEMENTS // view.spec.shape[1])
    for name in view.names:
        for start in range(0, view.held if name != VALUES else 0, step):
            if not all_finite(view.at(start, min(start + step, view.held), name).reshape(-1)):
                return name
    return ""


def restore_rows(memory: TableMemory, part: StoredRows, tables: ShardTables) -> None:
    """Takes those rows of a part that are this shard's.

    Raises:
        CheckpointError: a slot is missing, or an id cannot be.
    """
    if missing := {_stored(name) for name in memory.slots} - set(part.slots):
        raise CheckpointError(f"the checkpoint has not the slot {sorted(missing)[0]} of table {memory.spec.name}")
    for start, stop in part.pieces():
        ids = part.ids(start, stop)
        if ids.size and (ids.min() < 0 or ids.max() >= memory.spec.shape[0]):
            raise CheckpointError(f"the checkpoint has a row that table {memory.spec.name} cannot have")
        mine = np.flatnonzero(ids % tables.shard_count == tables.shard)
        if mine.size:
            for name in (VALUES, *memory.slots):
                memory.restore(ids[mine], name, part.values(start, stop, _stored(name))[mine])
