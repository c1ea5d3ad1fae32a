"""Reading rows of tables without taking part: of a snapshot that the shards keep for several calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from grpc_ps.client.receiving import take_chunk
from grpc_ps.client.shard_client import Pulling, ShardClient
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import Corrupt, SnapshotGone, UsageError
from grpc_ps.client.shared.image import Buffer, Layout, aligned_buffer
from grpc_ps.client.shared.rows import Array, Ids, Rows, gradients_bytes, split_ids, view_gradients
from grpc_ps.protos import parameter_server_pb2 as wire

MAX_IDS = 1 << 17
"""Ids in one call: as many as a message of any shard has room for."""

_NOTHING = Layout((), (), 0)


class RowReader:
    """Reads tables as they were at one snapshot, which has to be kept meanwhile."""

    def __init__(
        self, shards: Sequence[ShardClient], tables: Sequence[ParameterSpec], meta: wire.SnapshotMeta, timeout: float
    ) -> None:
        self._shards = shards
        self._tables = {spec.name: spec for spec in tables}
        self._meta = meta
        self._timeout = timeout

    def spec(self, name: str) -> ParameterSpec:
        """The table of that name. Raises UsageError if there is none."""
        if name not in self._tables:
            raise UsageError(f"no table {name!r}; there are: {', '.join(sorted(self._tables)) or 'none'}")
        return self._tables[name]

    def rows(self, name: str, ids: Ids) -> Array:
        """Reads the rows of those ids, in any order, duplicates too: shape [n, dim].

        Raises:
            UsageError: there is no such table, or no such row.
        """
        spec = self.spec(name)
        wanted, order = np.unique(np.asarray(ids, np.int64), return_inverse=True)
        if wanted.size and not (wanted[0] >= 0 and wanted[-1] < spec.shape[0]):
            raise UsageError(f"table {name}: rows are from 0 to {spec.shape[0] - 1}")
        found = np.empty((len(wanted), spec.shape[1]), np.float32)
        most = min(spec.table.push_rows, MAX_IDS) if spec.table is not None else 1
        for shard, place in zip(self._shards, split_ids(wanted, len(self._shards)), strict=True):
            mine = np.arange(len(wanted))[place]
            for start in range(0, len(mine), most):
                some = mine[start : start + most]
                found[some] = self._read(shard, spec, wanted[some]).values
        return found[order.reshape(-1)]

    def table(self, name: str) -> Rows:
        """Reads a whole table: the rows that the shards hold, in order of their ids. Raises UsageError as `rows`."""
        spec = self.spec(name)
        parts = [self._read(shard, spec, None) for shard in self._shards]
        ids = np.concatenate([part.ids for part in parts])
        order = np.argsort(ids, kind="stable")
        return Rows(ids[order], np.concatenate([part.values for part in parts])[order])

    def _read(self, shard: ShardClient, spec: ParameterSpec, ids: Ids | None) -> Rows:
        data = b"" if ids is None else ids.astype("<i8").tobytes()
        messages = shard.pull(self._meta.snapshot, self._timeout, table=spec.name, ids=data, keep=True)
        return _received(messages, spec, self._meta, shard.address)


class _Behind:
    """Memory for what a shard sends."""

    def __init__(self, size: int) -> None:
        self.buffer = aligned_buffer(size)

    def take(self, offset: int, data: Buffer) -> None:
        self.buffer[offset : offset + len(data)] = np.frombuffer(data, np.uint8)


def _received(messages: Iterable[Pulling], spec: ParameterSpec, wanted: wire.SnapshotMeta, address: str) -> Rows:
    behind, received, count = _Behind(0), 0, 0
    for response, chunk in messages:
        if response.HasField("meta"):
            meta = response.meta
            if (meta.generation, meta.global_step) != (wanted.generation, wanted.global_step):
                raise SnapshotGone(f"{address}: the rows are of another snapshot")
            count = meta.rows
            if meta.total_bytes != gradients_bytes([spec], [count]):
                raise Corrupt(f"{address}: {meta.total_bytes} bytes are not {count} rows of table {spec.name}")
            behind = _Behind(meta.total_bytes)
        total = len(behind.buffer)
        received = take_chunk(chunk, received, _NOTHING, (), address, behind=behind, total=total)
    if received != len(behind.buffer):
        raise Corrupt(f"{address}: the rows have not {len(behind.buffer)} bytes")
    (rows,) = view_gradients([spec], [count], behind.buffer)
    return rows
