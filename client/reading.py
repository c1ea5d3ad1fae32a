"""Reading a job's parameters without taking part: one snapshot over all shards."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from grpc_ps.client.channel import Reachability
from grpc_ps.client.parameters import Array, Parameters, ShardImages
from grpc_ps.client.reading_rows import RowReader
from grpc_ps.client.receiving import take_chunk
from grpc_ps.client.shard_client import ShardClient
from grpc_ps.client.shared import codec
from grpc_ps.client.shared.blocks import place
from grpc_ps.client.shared.codec import ChunkView
from grpc_ps.client.shared.errors import Corrupt, Full, PeerLost, PeerUnreachable, PsError, SnapshotGone, UsageError
from grpc_ps.client.shared.rows import Ids, Rows
from grpc_ps.protos import parameter_server_pb2 as wire

Message = tuple[wire.PullResponse, ChunkView | None]
Messages = Generator[Message, None, None]

# Seconds between two attempts, and the least that one gets.
_PAUSE = 0.2
# Seconds that a reading which has failed waits for its calls to end; they do that beside it if they take longer.
_END_SECONDS = 1.0


@dataclass(frozen=True)
class Pulled:
    """The values of all parameters asked for after `global_step` updates.

    Attributes:
        values: by name, but of tables.
        averages: whether those of trainable parameters are moving averages, that is, asked for and kept by the job.
        rows: of each table asked for the rows, [n, dim], in the order of the ids; of a whole one `tables` has both.
    """

    global_step: int
    values: dict[str, Array]
    averages: bool = False
    rows: dict[str, Array] = field(default_factory=dict)
    tables: dict[str, Rows] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is to be read: parameters by name, None for all; ids of rows by table; whole tables by name.

    `averages`: those of trainable parameters in place of their values, if the job keeps any.
    """

    names: Collection[str] | None = None
    averages: bool = False
    rows: Mapping[str, Ids] = field(default_factory=dict)
    tables: Collection[str] = ()

    @property
    def keep(self) -> bool:
        """Whether the snapshot is needed for more than the image of values."""
        return bool(self.rows or self.tables)


def pull(shards: Sequence[ShardClient], asked: Asked, timeout: float) -> Pulled:
    """Reads one snapshot from all shards; again when it did not come through, or when there are too many readers.

    A lead that still gets ready to keep one is waited for, but not one that cannot be reached at all. Nor is another
    snapshot asked for while some other shard is out of reach: the last one takes a reader's place until all shards have
    been told to let go of it.
    """
    deadline = time.monotonic() + timeout
    while True:
        begun = False
        try:
            lead, first = _pin(shards, max(deadline - time.monotonic(), _PAUSE), asked)
            begun = True
            pulled = _read(shards, asked, lead, first, max(deadline - time.monotonic(), _PAUSE))
            kept = first[0].meta.job.settings.moving_average > 0
            return replace(pulled, averages=asked.averages and kept)
        except (SnapshotGone, Full, PeerLost, PeerUnreachable, Corrupt) as error:
            again = begun or isinstance(error, (Full, SnapshotGone))
            if not again or time.monotonic() + _PAUSE > deadline:
                raise
            time.sleep(_PAUSE)
            if begun and not _are_there(shards[1:], deadline):
                raise


def _are_there(shards: Sequence[ShardClient], deadline: float) -> bool:
    """Waits until all those are connected; whether they are."""
    with Reachability({shard.address: shard.channel for shard in shards}) as reach:
        return all(reach.wait(shard.address, max(deadline - time.monotonic(), 0)) for shard in shards)


def _pin(shards: Sequence[ShardClient], timeout: float, asked: Asked) -> tuple[Messages, Message]:
    """Has the lead pin a snapshot; returns its messages, the first one apart."""
    messages = shards[0].pull(0, timeout, averages=asked.averages, keep=asked.keep, shard_count=len(shards))
    first = next(messages, None)
    if first is None or not first[0].HasField("meta"):
        raise Corrupt(f"{shards[0].address}: the values came without `meta`")
    return messages, first


def _read(shards: Sequence[ShardClient], asked: Asked, lead: Messages, first: Message, timeout: float) -> Pulled:
    meta = first[0].meta
    others: list[Messages] = []
    try:
        # All shards begin to send at once; gRPC keeps what is not read yet within its window.
        for shard in shards[1:]:
            others.append(shard.pull(meta.snapshot, timeout, keep=asked.keep))  # noqa: PERF401  # one may raise
        parameters = _parameters(meta, asked.names, len(shards))
        _receive(chain((first,), lead), parameters.shards[0], meta, shards[0].address)
        for shard, images, messages in zip(shards[1:], parameters.shards[1:], others, strict=True):
            _receive(messages, images, meta, shard.address)
        pulled = Pulled(meta.global_step, parameters.arrays)
        _read_tables(RowReader(shards, parameters.tables, meta, timeout), asked, pulled)
        return pulled
    except Exception:
        _end(others)
        raise
    finally:
        lead.close()
        if asked.keep:
            _let_go(shards, meta.snapshot)


def _end(calls: Sequence[Messages]) -> None:
    """Ends calls, also of which nothing was read: a shard lets go of what it had pinned already when a call ends.

    One that was cancelled before it had come there would end nothing, so its beginning is awaited, for a second. A
    shard that stands still is not waited for any longer.
    """
    ending = threading.Thread(target=_begin_and_end, args=(calls,), name="end-reading", daemon=True)
    ending.start()
    ending.join(_END_SECONDS)


def _begin_and_end(calls: Sequence[Messages]) -> None:
    for messages in calls:
        with suppress(PsError):
            next(messages, None)
        messages.close()


def _let_go(shards: Sequence[ShardClient], snapshot: int) -> None:
    """Has all shards let go of a snapshot that they keep; what cannot be told ends by itself."""
    for shard in shards:
        shard.let_go(snapshot)


def _read_tables(reader: RowReader, asked: Asked, pulled: Pulled) -> None:
    for name, ids in asked.rows.items():
        pulled.rows[name] = reader.rows(name, ids)
    for name in asked.tables:
        pulled.tables[name] = reader.table(name)


def _parameters(meta: wire.SnapshotMeta, names: Collection[str] | None, shard_count: int) -> Parameters:
    specs = [codec.from_proto(parameter) for parameter in meta.job.parameters]
    unknown = sorted(set(names or ()) - {spec.name for spec in specs})
    if unknown:
        raise UsageError(f"no such parameter: {', '.join(unknown)}")
    if tables := sorted(set(names or ()) & {spec.name for spec in specs if spec.table is not None}):
        raise UsageError(f"{tables[0]} is a table, of which rows are read")
    return Parameters(specs, place(specs, shard_count), names)


def _receive(messages: Iterable[Message], images: ShardImages, wanted: wire.SnapshotMeta, address: str) -> None:
    """Writes one shard's values into the arrays; checks that they are all there and of the snapshot wanted."""
    received = 0
    for response, chunk in messages:
        if response.HasField("meta"):
            _check(response.meta, images, wanted, address)
        received = take_chunk(chunk, received, images.values, images.destinations, address)
    if received != images.values.total_bytes:
        raise Corrupt(f"{address}: the values have not {images.values.total_bytes} bytes")


def _check(meta: wire.SnapshotMeta, images: ShardImages, wanted: wire.SnapshotMeta, address: str) -> None:
    ours = (wanted.generation, wanted.global_step, images.values.total_bytes)
    if (meta.generation, meta.global_step, meta.total_bytes) != ours:
        raise SnapshotGone(f"{address}: the values are of another snapshot")
