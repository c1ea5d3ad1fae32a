"""Workers that stand by: who is there, and who carries out the present job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.queue import QueuedJob
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.settings import Settings

MAX_STANDING = 10_000
"""Workers that stand by at once."""
TRIES = 3
"""Times that a worker gets one job, where another try may end better."""
LOST_SECONDS, MAX_LOST = 3600.0, 20
"""For how long workers that have vanished are remembered, and how many of them."""


@dataclass(slots=True, kw_only=True)
class StandingWorker:
    """A process that takes jobs.

    Attributes:
        last: when it called last, or has been waiting for an answer.
        newest: the number of its newest call.
        carrying: the run of the job that it carries out, or was told to; 0 if none.
        parts: the newest of its processes whose end was told: an end that is told again counts once.
        tried: the run that it carried out last, and `failures` how often that failed here.
        hopeless: it would fail again.
        failure: the last words of its last failure; empty where it only ended together with its job.
    """

    nonce: int
    name: str
    last: float
    newest: int = 0
    carrying: int = 0
    parts: int = 0
    tried: int = 0
    failures: int = 0
    hopeless: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a worker's process for a job ended: 128 + n after signal n. `part` counts its processes; 0 if nobody does."""

    run: int
    exit_code: int
    reason: str
    part: int = 0


class Standing:
    """The workers by their nonces. Not guarded: used by the lead's event loop alone.

    Args:
        lease: seconds without a call after which a worker is gone.

    Attributes:
        lost: those that went so, without a word; the newest last. For people.
    """

    def __init__(self, lease: float) -> None:
        self.lease = lease
        self._workers: dict[int, StandingWorker] = {}
        self.lost: list[StandingWorker] = []
        # By run, how many carry it out: asked for each worker that waits.
        self._carriers: Counter[int] = Counter()
        # How the first of the present run's processes that failed did: there may be any number of them.
        self._failed: Done | None = None

    def __iter__(self) -> Iterator[StandingWorker]:
        return iter(tuple(self._workers.values()))

    def __len__(self) -> int:
        return len(self._workers)

    def call(self, nonce: int, name: str, carrying: int, now: float, number: int = 0) -> StandingWorker:
        """A worker has called, and says which run it carries out; Refusal: FULL for one too many.

        What a call says that a later one has overtaken is not so any more. `number` is the call's, 0 if nobody counts.
        """
        worker = self._workers.get(nonce)
        if worker is None:
            if len(self._workers) >= MAX_STANDING:
                raise Refusal("FULL", f"{MAX_STANDING} workers stand by already")
            worker = self._workers[nonce] = StandingWorker(nonce=nonce, name=name, last=now)
            self.lost = [other for other in self.lost if other.nonce != nonce]
        if not number or number > worker.newest:
            worker.last, worker.newest = now, number
            self._carry(worker, carrying)
        return worker

    def waits(self, worker: StandingWorker, number: int, now: float) -> bool:
        """Notes that a worker waits for the answer to that call; False if it does not: it has gone, or called again."""
        if self._workers.get(worker.nonce) is not worker or worker.newest != number:
            return False
        worker.last = now
        return True

    def _carry(self, worker: StandingWorker, run: int) -> None:
        self._count(worker.carrying, -1)
        self._count(run, 1)
        worker.carrying = run

    def _count(self, run: int, more: int) -> None:
        self._carriers[run] += more
        if not run or not self._carriers[run]:
            del self._carriers[run]

    def ended(self, worker: StandingWorker, ended: Ended, present: int, *, over: bool = False) -> bool:
        """Its process for a job has ended; False if that was told before. `present` is the run carried out now.

        `over` says that the job itself was over before: what a process says of that is no failure of this worker's.
        """
        if ended.part and ended.part <= worker.parts:
            return False
        worker.parts = ended.part
        self._carry(worker, 0)
        self._judge(worker, ended, present, over=over)
        return True

    def _judge(self, worker: StandingWorker, ended: Ended, present: int, *, over: bool) -> None:
        if worker.tried != ended.run:
            worker.tried, worker.failures = ended.run, 0
        if not ended.exit_code:
            worker.hopeless, worker.failure = True, ""
            return
        worker.failures += 1
        said = ended.reason or f"exit code {ended.exit_code}"
        worker.failure = "" if over else said
        worker.hopeless = not _may_end_better(ended.exit_code) or worker.failures >= TRIES
        if ended.run == present and self._failed is None:
            self._failed = Done(ended.exit_code, f"{worker.name}: {said}")

    def leave(self, nonce: int) -> None:
        """A worker goes."""
        if (worker := self._workers.pop(nonce, None)) is not None:
            self._count(worker.carrying, -1)

    def expire(self, now: float) -> list[StandingWorker]:
        """Forgets those that have not called for a lease."""
        gone = [worker for worker in self if now - worker.last > self.lease]
        for worker in gone:
            self.leave(worker.nonce)
        self.lost = [worker for worker in (*self.lost, *gone) if now - worker.last <= LOST_SECONDS][-MAX_LOST:]
        return gone

    def begin(self) -> None:
        """Another run begins."""
        self._failed = None

    def take(self, worker: StandingWorker, job: QueuedJob, places: int) -> bool:
        """Gives the present job to a worker that has nothing to do, if it is still wanted there."""
        again = worker.tried == job.run and worker.hopeless
        if worker.carrying or again or self.carriers(job) >= places:
            return False
        self._carry(worker, job.run)
        return True

    def carriers(self, job: QueuedJob) -> int:
        """How many carry the job out."""
        return self._carriers[job.run]

    def failure(self, job: QueuedJob) -> Done | None:
        """Why the job cannot go on where nobody is a member of it: every process for it has failed, and would again.

        None as long as somebody carries it out or may, or nobody has tried; without anybody it waits for newcomers.
        """
        able = [worker for worker in self if worker.tried != job.run or not worker.hopeless]
        return self._failed if len(self) and not able else None

    def first_failure(self) -> str:
        """The first failure of the present run, for people; empty if there was none."""
        return self._failed.reason if self._failed is not None else ""


def places(settings: Settings, members: int) -> int:
    """How many standing workers a job gets."""
    if settings["mode"] == "sync":
        return int(settings["workers"]) + int(settings["backup"])
    most = int(settings["max_workers"])
    return min(members, most) if members else most


def _may_end_better(exit_code: int) -> bool:
    """A bug of ours, a lost peer, a kill; not a wrong flag, missing data, NaN or a folder that cannot be written."""
    return exit_code in (1, 4) or exit_code > 128
