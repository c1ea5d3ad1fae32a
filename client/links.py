"""The training streams of one worker: one to each shard, which live and end together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Protocol

from grpc_ps.client.row_traffic import Receiver
from grpc_ps.client.shared.errors import PsError
from grpc_ps.client.shared.image import Bytes, Layout
from grpc_ps.client.stream import Stream
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire


class Shard(Protocol):
    """What opens training streams: a `ShardClient`."""

    address: str

    def open_stream(self, on_end: Callable[[], None]) -> Stream:
        """Opens a training stream."""


class Links:
    """One stream to each shard. When one ends all end.

    A thread that waits for shard 0 would otherwise never learn that shard 1 is gone, and the answer it waits for
    cannot come then. Whoever attaches anew is told what each shard holds, so nothing is sent twice for that.

    Streams end in gRPC's threads, perhaps several at once, and nothing is locked: `_closed` only ever becomes true, by
    one assignment; closing a stream again does nothing; and of two failures that are noted at the same moment either
    may count as the first.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.opened = time.monotonic()
        self._failure: PsError | None = None
        self._closed = False
        self.streams: list[Stream] = []
        for shard in shards:
            self.streams.append(shard.open_stream(self._ended))
        if self._closed:  # one ended before the others were opened
            self._closed = False
            self._ended()

    def _ended(self) -> None:
        """One stream has ended: notes why, then ends the others. Called in gRPC's threads."""
        if self._failure is None:
            self._failure = next(filter(None, (stream.failure() for stream in tuple(self.streams))), None)
        self.close()

    @contextmanager
    def _first_failure(self) -> Iterator[None]:
        """What the first stream said counts: the others only followed it."""
        try:
            yield
        except PsError as error:
            self.close()
            raise self._failure or error from error

    def attach(self, identity: job_pb2.Identity, job: job_pb2.JobSpec | None, timeout: float) -> list[wire.Attached]:
        """Attaches to all shards within `timeout` seconds; returns what each holds, in order.

        All are asked before any is waited for: one may take long, and a stream that begins with silence is refused.
        """
        deadline = time.monotonic() + timeout
        with self._first_failure():
            for stream in self.streams:
                stream.attach(identity, job)
            return [stream.attached(max(deadline - time.monotonic(), 0.1)) for stream in self.streams]

    def send(self, pushes: Mapping[int, Iterator[bytes]], sequence: int) -> None:
        """Sends the parts of push `sequence` to the shards of those numbers.

        A message goes to each in turn, so that all links are busy. When the lead answers the push before all of it has
        been sent, the rest is not: it would be thrown away. One message a shard is sent without a look.
        """
        with self._first_failure():
            for count, turn in enumerate(zip_longest(*pushes.values())):
                if count and self._answered(sequence):
                    return
                for number, message in zip(pushes, turn, strict=True):
                    if message is not None:
                        self.streams[number].send(message)

    def _answered(self, sequence: int) -> bool:
        """Whether the lead, which answers first, has begun to answer the push, or says that the job is done."""
        self.streams[0].read_ahead()
        answer = self.streams[0].peek()
        return answer is not None and (answer.HasField("done") or answer.result.sequence == sequence)

    def read(
        self,
        shard: int,
        layout: Layout,
        destinations: Sequence[Bytes],
        begins: Callable[[], None] = lambda: None,
        rows: Receiver | None = None,
    ) -> wire.Answer:
        """Waits for the next answer of a shard; see `TrainingStream.read_answer`."""
        with self._first_failure():
            return self.streams[shard].read_answer(layout, destinations, begins, rows)

    def read_image(self, shard: int, layout: Layout, destinations: Sequence[Bytes], total: int) -> None:
        """Waits for the image that a shard sends behind `attached`; see `TrainingStream.read_image`."""
        with self._first_failure():
            self.streams[shard].read_image(layout, destinations, total)

    def send_to(self, shard: int, messages: Iterator[bytes]) -> None:
        """Sends what only that shard wants."""
        with self._first_failure():
            for message in messages:
                self.streams[shard].send(message)

    @property
    def closed(self) -> bool:
        """Whether the links have ended."""
        return self._closed

    def close(self) -> None:
        """Ends all streams. Any thread may call it; the thread that waits on one of them gets PeerLost."""
        if self._closed:
            return
        self._closed = True
        for stream in tuple(self.streams):
            stream.close()
