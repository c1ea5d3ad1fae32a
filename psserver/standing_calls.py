"""The calls of standing workers, on shard 0: they are held while there is nothing to do."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpc_ps.client.shared.logs import event
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.queue import QueuedJob
from grpc_ps.psserver.lead.standing import Ended, StandingWorker
from grpc_ps.psserver.refusals import decided

if TYPE_CHECKING:
    from grpc_ps.psserver.jobs import Jobs

LOOK_SECONDS = 0.5
"""After which a worker that waits for a job is looked at again, whether there is news or not."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A standing worker that calls: what it says of itself. `carrying` is a run id, 0 for nothing.

    `call` counts its calls, 0 if it does not.
    """

    nonce: int
    name: str
    call: int = 0
    carrying: int = 0
    ended: Ended | None = None
    leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a standing worker is told: to carry out a job, that what it does is over, or that the cluster ends."""

    job: QueuedJob | None = None
    over: bool = False
    closing: Done | None = None

    @property
    def is_news(self) -> bool:
        """Whether there is something to do."""
        return self.job is not None or self.over or self.closing is not None


class StandingCalls:
    """Answers standing workers. Not guarded: used by the lead's event loop alone."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def hear(self, caller: Caller, wait: float) -> Told:
        """Hears a standing worker, and holds its call for up to `wait` seconds while there is nothing to do for it.

        Raises:
            UsageError: this cluster takes no jobs. Full: too many stand by.
        """
        self._jobs.demand()
        deadline = time.monotonic() + wait
        if caller.leaving:
            self._jobs.standing.leave(caller.nonce)
            return Told()
        worker = self._called(caller)
        if caller.ended is not None:
            self._ended(caller, worker, caller.ended)
        while self._jobs.standing.waits(worker, caller.call, self._jobs.now()):
            told = self._answer(caller, worker)
            left = deadline - time.monotonic()
            if told.is_news or left <= 0:
                return told
            await self._jobs.news(min(left, LOOK_SECONDS))
        return Told()

    def _answer(self, caller: Caller, worker: StandingWorker) -> Told:
        jobs = self._jobs
        if jobs.closing is not None:
            return Told(closing=jobs.closing)
        current = jobs.present
        if caller.carrying:
            return Told(over=current is None or current.run != caller.carrying)
        if current is None or not jobs.standing.take(worker, current, jobs.places(current)):
            return Told()
        return Told(job=current)

    def _called(self, caller: Caller) -> StandingWorker:
        standing, now = self._jobs.standing, self._jobs.now()
        known = len(standing)
        worker = decided(lambda: standing.call(caller.nonce, caller.name, caller.carrying, now, caller.call))
        if len(standing) > known:
            event(logger, "worker_stands_by", name=caller.name, standing=len(standing))
        return worker

    def _ended(self, caller: Caller, worker: StandingWorker, ended: Ended) -> None:
        jobs, current = self._jobs, self._jobs.queue.current
        over = jobs.present is None or jobs.present.run != ended.run
        news = jobs.standing.ended(worker, ended, current.run if current is not None else 0, over=over)
        if news and ended.exit_code:
            event(logger, "part_failed", logging.WARNING, name=caller.name, code=ended.exit_code, why=ended.reason)
