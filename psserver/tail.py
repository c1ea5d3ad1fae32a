"""The rows of tables behind the image of a push, and the ids of those that a worker wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.codec import ChunkView
from grpc_ps.client.shared.errors import Corrupt, InvalidPush
from grpc_ps.client.shared.image import Buffer
from grpc_ps.client.shared.rows import (
    Ids,
    Rows,
    gradients_bytes,
    ids_bytes,
    problem_of_ids,
    rows_on_shard,
    view_gradients,
    view_ids,
)
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.finite import all_finite
from grpc_ps.psserver.pages import paged_buffer


@dataclass(frozen=True)
class ShardTables:
    """The tables of a job as one shard has them: in order of their names, and which rows are its own."""

    specs: tuple[ParameterSpec, ...]
    shard: int
    shard_count: int

    def limits(self) -> list[int]:
        """For each table the rows that one push may have here, and want."""
        return [
            min(spec.table.push_rows if spec.table else 0, rows_on_shard(spec.shape[0], self.shard, self.shard_count))
            for spec in self.specs
        ]

    def push_bytes(self) -> int:
        """Memory for the rows that one push may bring, and for the ids of those that it may want."""
        limits = self.limits()
        return gradients_bytes(self.specs, limits) + ids_bytes(limits)

    def check_counts(self, counts: Sequence[int], of: str) -> list[int]:
        """Returns how many rows of each table there are; none at all may be said by no counts.

        Raises:
            InvalidPush: these are not as many as there are tables, or one is beyond its limit.
        """
        counts = list(counts) or [0] * len(self.specs)
        if len(counts) != len(self.specs):
            raise InvalidPush(f"{of}: rows of {len(counts)} tables, the job has {len(self.specs)}")
        for spec, count, most in zip(self.specs, counts, self.limits(), strict=True):
            if count > most:
                raise InvalidPush(f"{of}: {count} rows of table {spec.name}, at most {most} on this shard")
        return counts

    def check_ids(self, ids: Sequence[Ids]) -> str:
        """Says what is wrong with ids of each table; empty if nothing is."""
        for spec, some in zip(self.specs, ids, strict=True):
            if problem := problem_of_ids(some, spec.shape[0], self.shard, self.shard_count):
                return f"table {spec.name}: {problem}"
        return ""


@dataclass(frozen=True)
class Wanted:
    """The rows, of each table, that a worker wants with the release of a batch."""

    batch: int
    ids: tuple[Ids, ...]


class Tail:
    """What stands behind the image of a push, in memory that is made once a place.

    Attributes:
        rows: of each table the gradients that the push brings, valid until the memory is filled again.
        wanted: copies of the ids that it wants for another batch; None if it wants none.
        non_finite: name of a table with a NaN or an infinity.
        nbytes: of what the header says.
    """

    def __init__(self, tables: ShardTables) -> None:
        self._tables = tables
        self.nbytes = 0
        self.buffer = paged_buffer(tables.push_bytes())
        self.rows: tuple[Rows, ...] = ()
        self.wanted: Wanted | None = None
        self.non_finite = ""

    def begin(self, header: PushHeader, of: str) -> int:
        """Prepares for what the header says; returns how many bytes that is.

        Raises:
            InvalidPush: there are more rows than one push may have.
        """
        self._batch = header.wanted_batch
        self._counts = self._tables.check_counts(header.rows, of)
        self._wanted_counts = self._tables.check_counts(header.wanted_rows, of) if header.wanted_rows else []
        self._gradients = gradients_bytes(self._tables.specs, self._counts)
        self.rows, self.wanted, self.non_finite = (), None, ""
        self.nbytes = self._gradients + ids_bytes(self._wanted_counts)
        return self.nbytes

    def take(self, start: int, data: Buffer) -> None:
        """Takes the next bytes, those from `start`."""
        self.buffer[start : start + len(data)] = np.frombuffer(data, np.uint8)

    def finish(self) -> str:
        """Looks at what has come when all is here. Returns what is wrong with it, empty if nothing is."""
        rows = view_gradients(self._tables.specs, self._counts, self.buffer)
        wanted = view_ids(self._wanted_counts, self.buffer[self._gradients :])
        problem = self._tables.check_ids([some.ids for some in rows])
        if wanted and not problem:
            problem = self._tables.check_ids(wanted)
            self.wanted = Wanted(self._batch, tuple(ids.copy() for ids in wanted))
        self.rows = tuple(rows)
        bad = (s.name for s, some in zip(self._tables.specs, rows, strict=True) if not all_finite(some.values.ravel()))
        self.non_finite = next(bad, "")
        return problem


class WantsPart:
    """Ids of wanted rows that a worker sends without a push, on their way in.

    Attributes:
        dropped: never; as `Part` has it.
        wanted: what is wanted, once all is here.
    """

    dropped = False

    def __init__(self, header: PushHeader, tables: ShardTables) -> None:
        self.wanted: Wanted | None = None
        self._tables = tables
        self._batch = header.wanted_batch
        self._counts = tables.check_counts(header.wanted_rows, str(self))
        self._buffer = np.zeros(ids_bytes(self._counts), np.uint8)
        self._received = 0
        if header.total_bytes != len(self._buffer):
            raise InvalidPush(f"{self}: {header.total_bytes} bytes declared, the ids have {len(self._buffer)}")

    def write(self, chunk: ChunkView) -> None:
        """Takes the next chunk.

        Raises:
            InvalidPush: for a gap, a repetition or bytes beyond the ids.
            Corrupt: for a chunk whose sum is wrong.
        """
        start, end = chunk.offset, chunk.offset + len(chunk.data)
        if start != self._received or start == end or end > len(self._buffer):
            raise InvalidPush(
                f"{self}: a chunk of {len(chunk.data)} bytes at {start}, expected one at {self._received}"
            )
        if not chunk.check():
            raise Corrupt(f"{self}: the sum of the chunk at {start} is wrong")
        self._buffer[start:end] = np.frombuffer(chunk.data, np.uint8)
        self._received = end

    def finish(self) -> None:
        """Takes the ids.

        Raises:
            InvalidPush: bytes are missing, or an id cannot be.
        """
        if self._received != len(self._buffer):
            raise InvalidPush(f"{self}: ended after {self._received} of {len(self._buffer)} bytes")
        ids = view_ids(self._counts, self._buffer)
        if problem := self._tables.check_ids(ids):
            raise InvalidPush(f"{self}: {problem}")
        self.wanted = Wanted(self._batch, tuple(ids))

    def __str__(self) -> str:
        return "wanted rows"
