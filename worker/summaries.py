"""Writes TensorBoard's summaries beside training, which never waits for them and never ends because of them."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsFloat

from grpc_ps.client import ClusterStatus, PsError, Reply, TrainingSession
from grpc_ps.worker.event_folder import MAX_PENDING, Timeline
from grpc_ps.worker.figures import Point, of_evaluation, of_job, of_worker
from grpc_ps.worker.progress import Mark, Progress
from grpc_ps.worker.run_folder import RunFolder

_LOGGER = logging.getLogger("grpc_ps.worker")
# Seconds from one writing to the next, from one point of the job to the next, and for the last writing.
_INTERVAL = 1.0
_JOB_INTERVAL = 5.0
_CLOSING = 10.0


@dataclass(frozen=True)
class _Evaluated:
    at: float
    global_step: int
    metrics: Mapping[str, float]


class Summaries:
    """A worker's own figures in DIR/worker-N; the job's in DIR/job and DIR/eval while it holds the lease to evaluate.

    The trainer's thread only hands over what it has at hand (`begin`, `step`, `end`), any thread what an evaluation
    found (`evaluated`); a thread of this object's own makes and writes the rest, and alone touches what is behind
    `_given`, whose ends are safe to use from two threads. Steps are global ones. A folder that cannot be written is
    tried again each time.

    Args:
        directory: TensorBoard's --logdir.
        every: global steps from one point of a worker to its next.
        status: asks the lead.
        interval, job_interval: seconds from one writing to the next, and from one point of the job to the next.
    """

    def __init__(
        self,
        directory: Path,
        every: int,
        status: Callable[[], ClusterStatus],
        *,
        interval: float = _INTERVAL,
        job_interval: float = _JOB_INTERVAL,
    ) -> None:
        self._directory = directory
        self._every = every
        self._status = status
        self._interval = interval
        self._job_interval = job_interval
        # The trainer's thread's.
        self._next = 0
        self._staleness: Counter[int] = Counter()
        # Between the threads.
        self._given: deque[TrainingSession | Point | _Evaluated] = deque(maxlen=MAX_PENDING)
        self._closing = threading.Event()
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="summaries", daemon=True)
        # The own thread's.
        self._session: TrainingSession | None = None
        self._timeline: Timeline | None = None
        self._own: RunFolder | None = None
        self._job = RunFolder(directory / "job")
        self._evaluations = RunFolder(directory / "eval")
        self._since: Mark | None = None
        self._read: ClusterStatus | None = None
        self._read_at = 0.0

    def begin(self, session: TrainingSession) -> None:
        """A session has begun: what follows is of its timeline."""
        self._next, self._staleness = 0, Counter()
        self._given.append(session)
        if not self._thread.ident:
            self._thread.start()

    def step(self, reply: Reply, loss: SupportsFloat, progress: Progress) -> None:
        """A step was answered. Most of them cost a look at two numbers."""
        if reply.outcome == "APPLIED":
            self._staleness[reply.staleness] += 1
        if reply.global_step >= self._next:
            self._next = (reply.global_step // self._every + 1) * self._every
            self._hand_over(float(loss), progress)

    def _hand_over(self, loss: float, progress: Progress) -> None:
        staleness, self._staleness = self._staleness, Counter()
        outcomes = dict(progress.outcomes)
        point = Point(mark=progress.mark(), at=time.time(), loss=loss, outcomes=outcomes, staleness=staleness)
        self._given.append(point)

    def evaluated(self, global_step: int, metrics: Mapping[str, float]) -> None:
        """Takes what an evaluation has found; this worker held the lease for it."""
        self._given.append(_Evaluated(time.time(), global_step, metrics))

    def end(self, progress: Progress) -> None:
        """The job is done and can still be read: writes the last points."""
        if progress.loss is not None:
            self._hand_over(progress.loss, progress)
        self._finished = True
        self.close()

    def close(self) -> None:
        """Writes what there is, and ends the thread."""
        self._closing.set()
        if self._thread.ident:
            self._thread.join(_CLOSING)

    def _run(self) -> None:
        try:
            while not self._closing.wait(self._interval):
                self._turn(last=False)
            self._turn(last=True)
        except Exception as error:  # A bug here must not end training.
            _LOGGER.warning("summaries_failed", exc_info=error)
        finally:
            for folder in (self._own, self._job, self._evaluations):
                if folder is not None:
                    folder.close()

    def _turn(self, *, last: bool) -> None:
        while self._given and self._take(self._given[0]):
            self._given.popleft()
        if self._timeline is not None and self._session is not None:
            self._of_job(self._session, self._timeline, last=last)
        if self._own is not None:
            self._own.flush()

    def _take(self, given: TrainingSession | Point | _Evaluated) -> bool:
        """Whether it is done with."""
        if isinstance(given, Point):
            self._of_worker(given)
        elif isinstance(given, _Evaluated):
            self._of_evaluation(given)
        else:
            return self._begin(given)
        return True

    def _begin(self, session: TrainingSession) -> bool:
        """Finds the session's place in the job's history; not done as long as the lead does not answer."""
        try:
            status = self._status()
        except PsError:
            return False
        for folder in (self._own, self._job, self._evaluations):
            if folder is not None:
                folder.close()
        # If the session is over already, what it brings is behind the step that the next one goes on from.
        restored = status.checkpoint.restored_step if status.checkpoint is not None else None
        self._session, self._since, self._read = session, None, None
        self._timeline = Timeline(session.run, session.generation, restored or 0)
        self._own = RunFolder(self._directory / f"worker-{session.worker}")
        self._own.open(self._timeline)
        return True

    def _of_worker(self, point: Point) -> None:
        since, self._since = self._since, point.mark
        if self._timeline is not None and self._own is not None:
            self._own.add(point.mark.global_step, of_worker(point, since), point.at)

    def _of_evaluation(self, found: _Evaluated) -> None:
        if self._timeline is not None:
            self._evaluations.open(self._timeline)
            self._evaluations.add(found.global_step, of_evaluation(found.metrics), found.at)

    def _of_job(self, session: TrainingSession, timeline: Timeline, *, last: bool) -> None:
        """The job's figures, if it is this worker that holds the lease; else nobody's folder is kept."""
        if not last and not session.evaluator:
            self._job.close()
            self._evaluations.close()
            return
        now = time.monotonic()
        if self._finished if last else now >= self._read_at + self._job_interval:
            self._read_at = now
            self._read_job(session, timeline)
        self._job.flush()
        self._evaluations.flush()

    def _read_job(self, session: TrainingSession, timeline: Timeline) -> None:
        try:
            status = self._status()
        except PsError:
            return
        # A short job may end before a heartbeat has told who holds the lease.
        holds = any(each.evaluator and each.incarnation == session.incarnation for each in status.workers)
        if holds and status.generation == timeline.generation:
            self._job.open(timeline)
            self._job.add(status.global_step, of_job(status, self._read), time.time())
            self._read = status
