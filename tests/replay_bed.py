"""A log that is carried out on one shard, without a network: entries in, values and reports out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from updated_shards import fill, plan_of

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.codec import ChunkView, word_sum
from grpc_ps.protos.coordination_pb2 import Reduced, Saved
from grpc_ps.protos.job_pb2 import Identity
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.lead.log import Admit, Open, PushId
from grpc_ps.psserver.replay import Replay
from grpc_ps.psserver.round_updates import INLINE_BYTES
from grpc_ps.psserver.store import Store

DEADLINE = 20
# One push of the larger one is over the limit already.
SIZES = {"on-the-loop": 300, "in-the-thread": INLINE_BYTES // 4 + 16}


class Bed:
    """A replay with an open job of one parameter, and two workers that may push."""

    def __init__(self, size: int, kernels: ThreadPoolExecutor) -> None:
        self.reports: list[Reduced] = []
        self.overflows: list[tuple[str, int]] = []
        self.failures: list[BaseException] = []
        self.read: list[int] = []
        self.size = size
        self.position = 0
        self.saved: list[Saved] = []
        store: Future[type[Store]] = Future()
        store.set_result(Store)
        self.replay = Replay(
            shard=0,
            shard_count=1,
            chunk_bytes=8 * size,
            kernels=kernels,
            savers=kernels,
            files=None,
            store_class=store,
            on_overflow=lambda parameter, step: self.overflows.append((parameter, step)),
            on_reduced=self.reports.append,
            on_saved=self.saved.append,
            on_read=self.read.append,
            on_failure=self.failures.append,
        )
        plan = plan_of([ParameterSpec(name="w", shape=(size,), dtype="float32")], clip_norm=1.0)
        self.replay.expect(plan.job)
        for worker in (0, 1):
            assert self.replay.plan is not None
            self.replay.staging.attach(worker, worker + 1, self.replay.plan, self, opening=worker == 0)
            self.deliver(Admit(worker, worker + 1))

    def deliver(self, entry: Any) -> None:
        self.position += 1
        self.replay.deliver(self.position, entry)

    def whole(self, worker: int, sequence: int, value: float, kind: int = PushHeader.KIND_GRADIENTS) -> PushId:
        plan = self.replay.plan
        assert plan is not None
        buffer = np.zeros(plan.gradients.total_bytes, np.uint8)
        fill(plan.gradients, buffer, {"w": np.full(self.size, value, np.float32)})
        header = PushHeader(
            id=Identity(worker=worker, incarnation=worker + 1), sequence=sequence, total_bytes=len(buffer), examples=1
        )
        header.kind = kind  # type: ignore[assignment]
        part = self.replay.staging.begin(header)
        assert part is not None
        part.write(ChunkView(0, word_sum(buffer.data), buffer.data))
        part.finish()
        return PushId(worker, worker + 1, sequence)

    async def settled(self) -> None:
        """Waits until everything that was delivered is carried out."""
        replay = self.replay
        await replay.until(lambda: replay.position == self.position and not replay._backlog._busy, DEADLINE, "the log")
        # Reports are called by the loop, after that.
        await asyncio.sleep(0)

    def values(self) -> list[float]:
        snapshot = self.replay._rounds.snapshot
        assert snapshot is not None
        (region,) = snapshot._layout.regions
        ((_, span),) = region.spans()
        return np.unique(np.frombuffer(snapshot._buffers[0], np.float32)[span]).tolist()  # type: ignore[no-any-return]


def run(size: int, test: Callable[[Bed], Awaitable[None]], fails: str = "") -> None:
    """Runs a test on a loop, with the job open at zeros; `fails` is what the shard has to fail with, once."""

    async def opened() -> None:
        with ThreadPoolExecutor(1) as kernels:
            bed = Bed(size, kernels)
            bed.deliver(Open(bed.whole(0, 1, 0.0, PushHeader.KIND_VALUES)))
            await bed.settled()
            await test(bed)
            assert [str(error) for error in bed.failures] == ([fails] if fails else [])

    asyncio.run(asyncio.wait_for(opened(), DEADLINE))


def no_kernel(*arguments: Any) -> Any:
    raise RuntimeError("no kernel")
