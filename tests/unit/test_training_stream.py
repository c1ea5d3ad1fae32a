"""A worker's stream on a shard against a call that a test plays: nothing it leaves undone is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from staged_pushes import PLAN, chunk, header, image

from grpc_ps.client.shared.blocks import Block
from grpc_ps.client.shared.codec import encode_message
from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.client.shared.image import values_layout
from grpc_ps.protos.job_pb2 import Identity
from grpc_ps.protos.parameter_server_pb2 import Attach, PushHeader, PushPullRequest, PushPullResponse
from grpc_ps.psserver.residuals import Residuals
from grpc_ps.psserver.sessions import Sessions
from grpc_ps.psserver.staging import Staging
from grpc_ps.psserver.training_stream import TrainingStream
from grpc_ps.psserver.turns import Turns

ME = Identity(run=1, generation=1, worker=0, incarnation=1)
KEPT = values_layout([Block("a", 0, 40, "float32", True)])
CHUNK = 128


class FakeCall:
    """The worker's end: it sends what a test puts in, and takes `room` messages before it reads no more."""

    def __init__(self, room: int) -> None:
        self.requests: asyncio.Queue[bytes] = asyncio.Queue()
        self.written: list[PushPullResponse] = []
        self._room = room

    async def read(self) -> bytes:
        return await self.requests.get()

    async def write(self, message: bytes) -> None:
        if len(self.written) == self._room:
            await asyncio.Event().wait()
        self.written.append(PushPullResponse.FromString(message))


class FakeReplay:
    """A shard of an open job, with its real staging and residuals, and nobody to refuse."""

    def __init__(self) -> None:
        self.plan, self.opened, self.patience, self.chunk_bytes = PLAN, True, 10.0, CHUNK
        self.staging, self.sessions, self.residuals = Staging(CHUNK), Sessions(), Residuals()
        self.residuals.open(KEPT, {}, places=1)
        self.identity = self.admission = SimpleNamespace(
            generation=1, check_run=self.nothing, check=self.nothing, knows=lambda *life: True
        )
        self.times = SimpleNamespace(during=self.during, each=lambda name, messages: messages, count=self.nothing)

    def nothing(self, *what: Any) -> None:
        pass

    at = nothing

    async def until(self, holds: Callable[[], bool], *more: Any) -> None:
        assert holds()

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        yield


class Bed:
    """A stream that serves what a test sends."""

    def __init__(self, room: int = 100) -> None:
        self.replay, self.call = FakeReplay(), FakeCall(room)
        self.wholes: list[Any] = []
        upstream: Any = SimpleNamespace(whole=self.wholes.append)
        serving: Any = self.replay
        call: Any = self.call
        self.stream = TrainingStream(call, serving, upstream, 7, None, Turns())
        self.send(PushPullRequest(attach=Attach(id=ME)))

    def send(self, *messages: PushPullRequest | bytes) -> None:
        for message in messages:
            self.call.requests.put_nowait(message if isinstance(message, bytes) else message.SerializeToString())

    def start(self) -> asyncio.Task[None]:
        @contextmanager
        def one() -> Iterator[None]:
            yield

        unattached: Any = SimpleNamespace(one=one)
        return asyncio.create_task(self.stream.run(unattached))


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0.001)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))


def part_of_a_push(data: np.ndarray, start: int, stop: int) -> bytes:
    piece = data[start:stop].tobytes()
    return encode_message(PushPullRequest(end=stop == len(data)), start, [memoryview(piece)])


def kept_back(size: int = 0) -> PushHeader:
    return PushHeader(id=ME, kind=PushHeader.KIND_RESIDUAL, position=5, total_bytes=size)


@pytest.mark.parametrize("room", [1, 2])
def test_a_worker_that_does_not_read_what_it_kept_is_not_waited_for(room: int) -> None:
    """It is dismissed, and nothing of its stream stays."""

    async def test() -> None:
        bed = Bed(room)
        bed.replay.residuals.open(KEPT, {0: np.zeros(KEPT.total_bytes, np.uint8)}, places=1)
        serving = bed.start()
        await until(lambda: len(bed.call.written) == room)
        session = bed.replay.sessions.get(0, 1)
        assert session is not None
        session.close(None)
        await serving
        assert bed.replay.sessions.get(0, 1) is None
        assert bed.replay.staging.bytes() == 0

    run(test)


def test_what_a_worker_kept_follows_attached() -> None:
    async def test() -> None:
        bed = Bed()
        data = np.arange(KEPT.total_bytes, dtype=np.uint8)
        bed.replay.residuals.open(KEPT, {0: data}, places=1)
        serving = bed.start()
        await until(lambda: len(bed.call.written) == 3)
        attached, *image = bed.call.written
        assert attached.attached.residual_bytes == KEPT.total_bytes
        assert b"".join(message.chunk.data for message in image) == data.tobytes()
        assert [message.end for message in image] == [False, True]
        serving.cancel()

    run(test)


def test_what_is_kept_back_may_come_behind_a_push_that_is_late_elsewhere() -> None:
    """Here the entry that says so has not been carried out yet. When it has, the next push is taken."""

    async def test() -> None:
        bed = Bed()
        replay, data = bed.replay, image()
        serving = bed.start()
        replay.residuals.decided(0, 1, 0, applied=False)
        replay.residuals.gather(5, 1, 60.0, lambda *what: None, lambda kept: bed.wholes.append("saved"))
        bed.send(PushPullRequest(header=header()), part_of_a_push(data, 0, 64))
        bed.send(PushPullRequest(header=kept_back(), end=True))
        await until(lambda: bed.wholes == ["saved"])
        assert replay.staging.whole((0, 1, 1)) is None
        replay.staging.forget((0, 1, 1))
        bed.send(PushPullRequest(header=header(sequence=2)), part_of_a_push(data, 0, 128))
        bed.send(part_of_a_push(data, 128, len(data)))
        await until(lambda: len(bed.wholes) == 2)
        assert replay.staging.whole((0, 1, 2)) is not None
        serving.cancel()

    run(test)


def test_what_is_kept_back_comes_whole_before_the_next_push() -> None:
    async def test() -> None:
        bed = Bed()
        bed.replay.residuals.decided(0, 1, 0, applied=False)
        bed.replay.residuals.gather(5, 1, 60.0, lambda *what: None, lambda kept: None)
        bed.send(PushPullRequest(header=kept_back(KEPT.total_bytes)), PushPullRequest(header=header()))
        with pytest.raises(InvalidPush, match="not ended before the next push"):
            await bed.start()

    run(test)


@pytest.mark.parametrize("size", [72, 192])
@pytest.mark.parametrize("kind", ["push", "kept back"])
def test_chunks_of_all_images_have_the_same_lengths(kind: str, size: int) -> None:
    async def test() -> None:
        bed = Bed()
        bed.replay.residuals.decided(0, 1, 0, applied=False)
        bed.replay.residuals.gather(5, 1, 60.0, lambda *what: None, lambda kept: None)
        begun = header() if kind == "push" else kept_back(KEPT.total_bytes)
        data = chunk(0, bytes(size)).data
        bed.send(PushPullRequest(header=begun), encode_message(PushPullRequest(), 0, [data]))
        with pytest.raises(InvalidPush, match=f"a chunk of {size} bytes must be a multiple of 64, at most {CHUNK}"):
            await bed.start()

    run(test)
