"""A worker without the client library: raw messages on a real stream, so that they may be wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence
from queue import SimpleQueue
from types import TracebackType

import grpc
import numpy as np

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.codec import to_proto, word_sum
from grpc_ps.client.shared.errors import REASON_KEY
from grpc_ps.protos import parameter_server_pb2 as wire
from grpc_ps.protos.job_pb2 import Identity, JobSpec, Settings
from grpc_ps.protos.parameter_server_pb2_grpc import ParameterServerStub
from grpc_ps.protos.tensor_pb2 import Chunk

DEADLINE = 20.0
PUSH_PULL = "/grpc_ps.v1.ParameterServer/PushPull"
Message = wire.PushPullRequest | bytes


class RawStream:
    """One call of `PushPull`; what is read is protobuf's own."""

    def __init__(self, channel: grpc.Channel, path: str = PUSH_PULL, timeout: float = DEADLINE) -> None:
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._call = channel.stream_stream(path)(iter(self._outbox.get, None), timeout=timeout)

    def send(self, *messages: Message) -> RawStream:
        for message in messages:
            self._outbox.put(message if isinstance(message, bytes) else message.SerializeToString())
        return self

    def end(self) -> None:
        """Half-closes the stream: nothing more will be sent."""
        self._outbox.put(None)

    def read(self) -> wire.PushPullResponse:
        """The next message."""
        return wire.PushPullResponse.FromString(next(self._call))

    def answer(self) -> tuple[wire.Answer, bytes]:
        """The next answer, with the image that follows it."""
        response = self.read()
        answer, image = response.answer, response.chunk.data
        while not response.end:
            response = self.read()
            image += response.chunk.data
        return answer, image

    def refusal(self) -> tuple[grpc.StatusCode, str, str]:
        """Reads to the end: status, reason and text that the shard ended the stream with."""
        try:
            for _ in self._call:
                pass
        except grpc.RpcError as error:
            pairs = error.trailing_metadata() or ()
            return error.code(), str(dict(pairs).get(REASON_KEY, "")), error.details() or ""
        return grpc.StatusCode.OK, "", ""

    def cancel(self) -> None:
        self._outbox.put(None)
        self._call.cancel()


class RawWorker:
    """Joins, attaches and pushes at one shard, with hand-made messages."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self.stub = ParameterServerStub(self._channel)
        self.joined = wire.JoinResponse()

    def __enter__(self) -> RawWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    @property
    def id(self) -> Identity:
        return self.joined.id

    @property
    def job(self) -> JobSpec:
        return self.joined.job

    def join(self, specs: Sequence[ParameterSpec], shards: int = 1) -> wire.JoinResponse:
        """Waits to be opener or member."""
        request = wire.JoinRequest(
            protocol=1,
            nonce=random.getrandbits(63) | 1,
            shard_count=shards,
            job=JobSpec(model="raw", parameters=[to_proto(spec) for spec in specs]),
            stated=Settings(),
            defaults=Settings(),
            name="raw",
            wait_ms=5000,
        )
        while True:
            self.joined = self.stub.Join(request, timeout=DEADLINE)
            if self.joined.state != wire.JoinResponse.STATE_WAITING:
                return self.joined

    def beat(self) -> None:
        self.stub.Heartbeat(wire.HeartbeatRequest(id=self.id), timeout=DEADLINE)

    def leave(self) -> None:
        self.stub.Leave(wire.LeaveRequest(id=self.id), timeout=DEADLINE)

    def open_stream(self) -> RawStream:
        """A stream on which nothing was sent."""
        return RawStream(self._channel)

    def attach(self, job: JobSpec | None = None) -> RawStream:
        """A stream that the shard has greeted."""
        stream = self.open_stream().send(self.attach_message(job))
        assert stream.read().HasField("attached")
        return stream

    def attach_message(self, job: JobSpec | None = None) -> wire.PushPullRequest:
        return wire.PushPullRequest(attach=wire.Attach(id=self.id, job=job))

    def header(self, sequence: int, total_bytes: int, *, batch: int = 0, step: int = 0) -> wire.PushHeader:
        return wire.PushHeader(
            id=self.id,
            sequence=sequence,
            kind=wire.PushHeader.KIND_GRADIENTS,
            base_step=step,
            batch=batch,
            examples=1,
            total_bytes=total_bytes,
        )

    def ask(self, sequence: int) -> wire.PushPullRequest:
        return wire.PushPullRequest(ask=wire.Ask(id=self.id, sequence=sequence))


def chunk(offset: int, data: bytes, total: int | None = None) -> Chunk:
    """A chunk with its sum, or with another one."""
    return Chunk(offset=offset, data=data, sum=(word_sum(data) if total is None else total) if data else 0)


def push(header: wire.PushHeader, image: bytes, chunk_bytes: int) -> list[wire.PushPullRequest]:
    """A push as it should be: a header, then chunks, then an end, all in as few messages as there are chunks."""
    spans = range(0, len(image), chunk_bytes)
    messages = [wire.PushPullRequest(chunk=chunk(at, image[at : at + chunk_bytes])) for at in spans]
    messages = messages or [wire.PushPullRequest()]
    messages[0].header.CopyFrom(header)
    messages[-1].end = True
    return messages


def floats(count: int, value: float) -> bytes:
    """An image of that many float32 numbers, padded to 64 bytes."""
    data = np.full(count, value, "<f4").tobytes()
    return data + bytes(-len(data) % 64)
