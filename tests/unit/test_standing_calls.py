"""The calls of standing workers: held, overtaken, and repeated until an answer has come."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.queue import Queue, Submission
from grpc_ps.psserver.lead.standing import Ended, Standing
from grpc_ps.psserver.standing_calls import Caller, StandingCalls, Told

DEADLINE = 10.0


class Bed:
    """What the calls see of the queue: job 1 with one place, which is carried out as run 7 from the start."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.job = self.queue.submit(Submission(model="linear"), at=0.0)
        self.queue.begin(self.job, 7, at=0.0)
        self.standing = Standing(lease=10.0)
        self.jobs: Any = SimpleNamespace(
            queue=self.queue,
            standing=self.standing,
            present=self.job,
            closing=None,
            demand=lambda: None,
            places=lambda job: 1,
            now=lambda: 0.0,
            news=self._news,
        )
        self._changed = asyncio.Event()

    async def _news(self, seconds: float) -> None:
        await self._changed.wait()

    def look(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def hear(self, nonce: int, call: int, wait: float = 0.0, **said: Any) -> Told:
        caller = Caller(nonce=nonce, name=f"host:{nonce}", call=call, **said)
        return await StandingCalls(self.jobs).hear(caller, wait)


def test_a_held_call_is_answered_with_nothing_once_a_later_one_has_come() -> None:
    """The place is another worker's; its caller has gone away and calls again, and the first call must take none."""

    async def scene() -> tuple[Told, Told, int]:
        bed = Bed()
        assert (await bed.hear(1, call=1)).job is bed.job
        held = asyncio.ensure_future(bed.hear(2, call=1, wait=DEADLINE))
        await asyncio.sleep(0)
        bed.standing.leave(1)
        again = await bed.hear(2, call=2)
        bed.look()
        return again, await asyncio.wait_for(held, DEADLINE), bed.standing.carriers(bed.job)

    again, held, carriers = asyncio.run(scene())
    assert again.job is not None
    assert (held, carriers) == (Told(), 1)


def test_an_answer_that_was_lost_is_given_again_and_a_failure_counts_once() -> None:
    async def scene() -> tuple[list[bool], int]:
        bed = Bed()
        ended = Ended(run=7, exit_code=4, reason="lost its peers", part=1)
        told = [await bed.hear(1, call=1)] + [await bed.hear(1, call=call, ended=ended) for call in (2, 3, 4, 5)]
        (worker,) = bed.standing
        return [it.job is bed.job for it in told], worker.failures

    assert asyncio.run(scene()) == ([True] * 5, 1)


def test_the_end_of_the_cluster_is_told_until_the_worker_says_that_it_goes() -> None:
    async def scene() -> list[int]:
        bed = Bed()
        bed.jobs.closing, stand = Done(), []
        for call in (1, 2):
            assert (await bed.hear(1, call=call, carrying=7)).closing == Done()
            stand.append(len(bed.standing))
        assert await bed.hear(1, call=3, leaving=True) == Told()
        return [*stand, len(bed.standing)]

    assert asyncio.run(scene()) == [1, 1, 0]
