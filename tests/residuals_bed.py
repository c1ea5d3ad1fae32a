"""What a shard's workers keep back: whom it asks for it, and what comes of that, by script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from grpc_ps.client.shared.blocks import Block
from grpc_ps.client.shared.codec import ChunkView, word_sum
from grpc_ps.client.shared.image import values_layout
from grpc_ps.protos.job_pb2 import Identity
from grpc_ps.protos.parameter_server_pb2 import Answer, PushHeader, ResidualRequest
from grpc_ps.psserver.residuals import Kept, Residuals

LAYOUT = values_layout([Block("a", 0, 20, "float32", True), Block("b", 0, 3, "float32", True)])
IMAGE = np.full(LAYOUT.total_bytes // 4, 2, np.float32).view(np.uint8)
POSITION, STEP = 7, 3


class Bed:
    """Residuals of a job, with what they ask for and what is to be written."""

    def __init__(self, patience: float = 60.0) -> None:
        self.residuals = Residuals()
        self.residuals.open(LAYOUT, {}, (0, 1, 1), places=8)
        self.patience = patience
        self.asked: list[tuple[int, int, Answer]] = []
        self.written: list[Kept] = []
        self.done = asyncio.Event()

    def gather(self) -> None:
        self.residuals.gather(POSITION, STEP, self.patience, lambda *what: self.asked.append(what), self._then)

    def _then(self, kept: Kept) -> None:
        self.written.append(kept)
        self.done.set()

    def header(self, worker: int, incarnation: int, *, position: int = POSITION, size: int | None = None) -> PushHeader:
        return PushHeader(
            id=Identity(worker=worker, incarnation=incarnation),
            kind=PushHeader.KIND_RESIDUAL,
            position=position,
            total_bytes=LAYOUT.total_bytes if size is None else size,
        )

    def send(self, worker: int, incarnation: int, value: float) -> None:
        part = self.residuals.receive(self.header(worker, incarnation))
        assert part is not None
        for offset in range(0, LAYOUT.total_bytes, 64):
            part.write(chunk(offset, value))
        part.finish()


def chunk(offset: int, value: float) -> ChunkView:
    data = np.full(16, value, np.float32).tobytes()
    return ChunkView(offset, word_sum(data), memoryview(data))


def request(applied: int) -> Answer:
    wanted = ResidualRequest(position=POSITION, applied=applied)
    return Answer(position=POSITION, global_step=STEP, residual=wanted)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))


def values(kept: Kept) -> dict[str, list[float]]:
    return {piece.key: sorted(set(np.frombuffer(data, np.float32).tolist())) for piece, data in kept}
