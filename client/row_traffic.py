"""Rows of tables between a worker and its shards: what a push brings and wants, and what a release gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grpc_ps.client.answers import Reply
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.codec import attach_chunk, encode_message
from grpc_ps.client.shared.errors import Corrupt, InvalidPush, UsageError
from grpc_ps.client.shared.image import Buffer, aligned_buffer, chunk_spans, padded
from grpc_ps.client.shared.rows import (
    Array,
    Ids,
    Rows,
    split_ids,
    values_bytes,
    view_values,
)
from grpc_ps.protos import parameter_server_pb2 as wire

_NO_IDS: Ids = np.empty(0, np.int64)


@dataclass(frozen=True)
class Wants:
    """The rows that a batch needs: of each table ids that rise; none of a table that is not named."""

    batch: int
    ids: Mapping[str, Ids]


@dataclass(frozen=True)
class Tail:
    """What stands behind the image of a push to one shard, in parts, with what its header says of it."""

    parts: Sequence[Buffer]
    rows: Sequence[int] = ()
    wanted_rows: Sequence[int] = ()
    wanted_batch: int = 0

    @property
    def total_bytes(self) -> int:
        """Its length, a multiple of 64."""
        return sum(map(len, self.parts))

    def mark(self, header: wire.PushHeader) -> None:
        """Says in the header what stands here."""
        header.rows.extend(self.rows)
        header.wanted_rows.extend(self.wanted_rows)
        header.wanted_batch = self.wanted_batch
        header.total_bytes += self.total_bytes

    def pieces(self, offset: int, nbytes: int) -> list[Buffer]:
        """A range of it. Nothing is copied."""
        end, start = offset + nbytes, 0
        found: list[Buffer] = []
        for part in self.parts:
            stop = start + len(part)
            if max(offset, start) < min(end, stop):
                found.append(memoryview(part)[max(offset - start, 0) : end - start])
            start = stop
        return found


class Receiver:
    """Takes the rows behind one shard's release, in memory that is used again.

    Attributes:
        counts: rows of each table in the last answer that was read; empty where it had none.
    """

    def __init__(self, tables: Sequence[ParameterSpec]) -> None:
        self.counts: list[int] = []
        self._tables = tables
        self._buffer = aligned_buffer(0)

    def begin(self, counts: Sequence[int], address: str) -> int:
        """Prepares for so many rows of each table; returns their bytes."""
        if counts and len(counts) != len(self._tables):
            raise Corrupt(f"{address}: rows of {len(counts)} tables instead of {len(self._tables)}")
        self.counts = list(counts)
        size = values_bytes(self._tables, counts) if counts else 0
        if size > len(self._buffer):
            self._buffer = aligned_buffer(2 * size)
        return size

    def take(self, offset: int, data: Buffer) -> None:
        """Takes the bytes from `offset` on."""
        self._buffer[offset : offset + len(data)] = np.frombuffer(data, np.uint8)

    def values(self) -> list[Array]:
        """The rows of each table, in this memory."""
        return view_values(self._tables, self.counts, self._buffer)


class RowTraffic:
    """The rows of a session's tables. Used by the session's thread; idle in a job without tables.

    Rows that were received lie in memory that the next release is written to.
    """

    def __init__(self, tables: Sequence[ParameterSpec], shard_count: int) -> None:
        self._tables = tables
        self._shard_count = shard_count
        self._receivers = [Receiver(tables) for _ in range(shard_count)]
        self._wants: Wants | None = None

    def receiver(self, shard: int) -> Receiver | None:
        """What takes the rows of that shard; None in a job without tables."""
        return self._receivers[shard] if self._tables else None

    def tails(self, rows: Mapping[str, Rows], wants: Wants | None) -> list[Tail] | None:
        """Returns what each shard gets behind the image of a push; None in a job without tables.

        Raises:
            InvalidPush: rows do not fit a table.
            UsageError: there are more than a push may have.
        """
        if not self._tables:
            return None
        self._check_names(rows)
        self._wants = wants = self._of_all(wants) if wants is not None else None
        brought = [rows.get(spec.name) or _none_of(spec) for spec in self._tables]
        for spec, some in zip(self._tables, brought, strict=True):
            _check(spec, some)
        places = [split_ids(some.ids, self._shard_count) for some in brought]
        wanted = self._split(wants)
        return [
            self._tail(brought, [each[shard] for each in places], wanted[shard], wants.batch if wants else 0)
            for shard in range(self._shard_count)
        ]

    def _check_names(self, names: Iterable[str]) -> None:
        for name in sorted({*names} - {spec.name for spec in self._tables}):
            raise InvalidPush(f"{name} is no table")

    def _of_all(self, wants: Wants) -> Wants:
        """The same with ids of every table. Raises InvalidPush for what is no table."""
        self._check_names(wants.ids)
        return Wants(wants.batch, {spec.name: wants.ids.get(spec.name, _NO_IDS) for spec in self._tables})

    def _tail(self, brought: Sequence[Rows], places: Sequence[Any], wanted: Sequence[Ids], batch: int) -> Tail:
        ids = [some.ids[place] for some, place in zip(brought, places, strict=True)]
        counts = self._counts(ids)
        parts = [
            array
            for mine, some, place in zip(ids, brought, places, strict=True)
            for array in (mine, some.values[place])
        ]
        return Tail(_padded([*parts, *wanted]), counts, self._counts(wanted), batch)

    def _counts(self, ids: Sequence[Ids]) -> list[int]:
        for spec, some in zip(self._tables, ids, strict=False):
            most = spec.table.push_rows if spec.table is not None else 0
            if len(some) > most:
                raise UsageError(
                    f"table {spec.name}: a batch has {len(some)} rows for one shard, its push_rows are {most}:"
                    " use smaller batches or more shards, or raise push_rows"
                )
        return _lengths(ids)

    def _split(self, wants: Wants | None) -> list[list[Ids]]:
        """What is wanted of each shard, by table; of no table where nothing is."""
        if wants is None:
            return [[] for _ in range(self._shard_count)]
        ids = [wants.ids[spec.name] for spec in self._tables]
        places = [split_ids(some, self._shard_count) for some in ids]
        return [
            [some[each[shard]] for some, each in zip(ids, places, strict=True)] for shard in range(self._shard_count)
        ]

    def requests(self, wants: Wants, header: wire.PushHeader, chunk_bytes: int) -> list[Iterator[bytes]]:
        """Returns the messages that name rows to each shard, without a push. Raises as `tails`."""
        if not self._tables:
            raise RuntimeError("rows are wanted in a job that has no tables")
        self._wants = wants = self._of_all(wants)
        return [_messages(self._request(wanted, wants.batch), header, chunk_bytes) for wanted in self._split(wants)]

    def _request(self, wanted: Sequence[Ids], batch: int) -> Tail:
        counts = self._counts(wanted)
        return Tail(_padded(wanted), (), counts, batch)

    def complete(self, reply: Reply) -> Reply:
        """The reply with the rows of its batch, if all shards gave those that were wanted for it."""
        wants = self._wants
        if not self._tables or reply.batch is None or wants is None or wants.batch != reply.batch:
            return reply
        expected = [_lengths(some) for some in self._split(wants)]
        if [receiver.counts for receiver in self._receivers] != expected:
            return reply
        parts = [receiver.values() for receiver in self._receivers]
        rows = {
            spec.name: self._assembled(wants.ids[spec.name], [part[index] for part in parts])
            for index, spec in enumerate(self._tables)
        }
        return replace(reply, rows=rows)

    def _assembled(self, ids: Ids, parts: Sequence[Array]) -> Array:
        if self._shard_count == 1:
            return parts[0]
        dim = parts[0].shape[1]
        whole = aligned_buffer(len(ids) * dim * 4).view(np.float32).reshape(len(ids), dim)
        for place, part in zip(split_ids(ids, self._shard_count), parts, strict=True):
            whole[place] = part
        return whole


def _lengths(ids: Sequence[Ids]) -> list[int]:
    return [len(some) for some in ids]


def _none_of(spec: ParameterSpec) -> Rows:
    return Rows(_NO_IDS, np.empty((0, spec.shape[1]), np.float32))


def _check(spec: ParameterSpec, rows: Rows) -> None:
    shape = len(rows.ids), spec.shape[1]
    if rows.values.shape != shape or rows.values.dtype != np.float32 or rows.ids.dtype != np.int64:
        got = f"{rows.ids.dtype} ids and {rows.values.dtype} {rows.values.shape}"
        raise InvalidPush(f"table {spec.name}: expected int64 ids and float32 {shape}, got {got}")


def _padded(arrays: Iterable[Array]) -> list[Buffer]:
    """The bytes of arrays one behind the other, each up to a multiple of 64; copied only if they are not in order."""
    parts: list[Buffer] = []
    for array in arrays:
        ordered = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        parts += [ordered.reshape(-1).view(np.uint8).data, bytes(padded(ordered.nbytes) - ordered.nbytes)]
    return parts


def _messages(tail: Tail, header: wire.PushHeader, chunk_bytes: int) -> Iterator[bytes]:
    own = wire.PushHeader()
    own.CopyFrom(header)
    tail.mark(own)
    message = wire.PushPullRequest(header=own)
    spans = chunk_spans(tail, chunk_bytes)
    if not spans:
        message.end = True
        yield attach_chunk(message, None)
    for number, (offset, nbytes) in enumerate(spans, 1):
        message.end = number == len(spans)
        yield encode_message(message, offset, tail.pieces(offset, nbytes))
        message = wire.PushPullRequest()
