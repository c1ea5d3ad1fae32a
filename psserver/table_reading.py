"""Rows of a table for a reader: of one position, made while they are sent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.image import Buffer, padded
from grpc_ps.client.shared.rows import ID_BYTES, Array, Ids
from grpc_ps.protos.parameter_server_pb2 import PullRequest
from grpc_ps.psserver.reader_pins import Pinned
from grpc_ps.psserver.snapshot import Outbound
from grpc_ps.psserver.table_memory import TableView
from grpc_ps.psserver.tail import ShardTables


class TableImage(Outbound):
    """The ids of some rows, and behind them, at a multiple of 64 bytes, their values.

    They are read when they are sent, a chunk at a time: any number of readers takes no memory for more.

    Attributes:
        count: how many rows.

    Args:
        ids: the rows; None for all that the shard held.
    """

    def __init__(self, view: TableView, ids: Ids | None, chunk_bytes: int, step: int) -> None:
        self._view = view
        self._ids = ids
        self._row = view.spec.shape[1] * 4
        self.count = view.held if ids is None else len(ids)
        self._border = padded(self.count * ID_BYTES)
        super().__init__(self._border + padded(self.count * self._row), chunk_bytes, step)

    def pieces(self, offset: int, nbytes: int) -> list[Buffer]:
        """A range of ids and values, read now."""
        stop = offset + nbytes
        data = [self._part(max(offset, 0), min(stop, self._border), ID_BYTES, self._ids_of)]
        data.append(self._part(offset - self._border, stop - self._border, self._row, self._values_of))
        return [piece for piece in data if len(piece)]

    def _part(self, start: int, stop: int, item: int, rows_of: Callable[[int, int], Array]) -> memoryview:
        """Bytes of the ids or of the values, zero behind the last one."""
        start = max(start, 0)
        if stop <= start:
            return memoryview(b"")
        first, last = start // item, min(-(-stop // item), self.count)
        found = rows_of(first, max(first, last))
        data = np.zeros(stop - first * item, np.uint8)
        data[: found.nbytes] = found.reshape(-1).view(np.uint8)[: len(data)]
        return data[start - first * item :].data

    def _ids_of(self, first: int, last: int) -> Ids:
        return self._view.ids(first, last) if self._ids is None else self._ids[first:last]

    def _values_of(self, first: int, last: int) -> Array:
        return self._view.at(first, last) if self._ids is None else self._view.read(self._ids[first:last])


def table_image(request: PullRequest, pinned: Pinned, tables: ShardTables, chunk_bytes: int) -> TableImage:
    """What a reader asks for.

    Raises:
        UsageError: there is no such table, or ids cannot be.
    """
    names = [spec.name for spec in tables.specs]
    if request.table not in names:
        raise UsageError(f"no table {request.table!r}; there are: {', '.join(names) or 'none'}")
    index = names.index(request.table)
    ids = None
    if request.ids:
        if len(request.ids) % ID_BYTES:
            raise UsageError(f"ids have {len(request.ids)} bytes, which is no multiple of {ID_BYTES}")
        ids = np.frombuffer(request.ids, "<i8")
        if len(ids) > (most := tables.limits()[index]):
            raise UsageError(f"{len(ids)} rows of table {request.table}, at most {most} at once")
        checked = [ids if other == index else ids[:0] for other in range(len(names))]
        if problem := tables.check_ids(checked):
            raise UsageError(problem)
    return TableImage(pinned.tables[index], ids, chunk_bytes, pinned.snapshot.step)
