"""The jobs that clients have submitted: one after the other, in order of their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.settings import Settings

MAX_QUEUED = 100
"""Jobs that wait."""
MAX_ENDED = 100
"""Jobs that have ended and are remembered."""
CANCELLED = 7
"""Exit code of a cancelled job, for whoever follows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a client asks for, as `JobRequest` in control.proto."""

    name: str = ""
    model: str
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    stated: Settings = field(default_factory=dict)
    members: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Where a job is: its global step and target (0 if not known), and what is known of its training."""

    global_step: int = 0
    steps: int = 0
    workers: int = 0
    loss: float | None = None
    batches: int = 0
    examples: int = 0
    evaluated_step: int = -1
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class QueuedJob:
    """A job in the queue.

    Attributes:
        state: QUEUED, STARTING, RUNNING, DONE, FAILED or CANCELLED.
        run: its run id, 0 before it starts.
        submitted, started, ended: times of day, in seconds; None before.
        ending: how it was told to end, before it has.
        last: the last reading of one that has ended.
    """

    number: int
    submission: Submission
    submitted: float
    state: str = "QUEUED"
    run: int = 0
    started: float | None = None
    ended: float | None = None
    ending: str = ""
    exit_code: int = 0
    reason: str = ""
    last: Reading = field(default_factory=Reading)


class Queue:
    """Jobs by number; at most one of them is carried out.

    Not guarded: used by the lead's event loop alone. `at` is a time of day: it is shown, and decides nothing.

    Attributes:
        current: the job that is starting or running.
    """

    def __init__(self, jobs: Iterable[QueuedJob] = (), following: int = 1) -> None:
        self._jobs = {job.number: job for job in jobs}
        self._next = max([following, *(number + 1 for number in self._jobs)])
        self.current = next((job for job in self if job.state in ("STARTING", "RUNNING")), None)

    def __iter__(self) -> Iterator[QueuedJob]:
        """All jobs that are known, in order of their numbers."""
        return iter(tuple(self._jobs.values()))

    @property
    def following(self) -> int:
        """The number that the next job gets."""
        return self._next

    def get(self, number: int) -> QueuedJob:
        """The job of that number; Refusal: USAGE if it is not known."""
        if number not in self._jobs:
            known = "none" if not self._jobs else f"{min(self._jobs)} to {max(self._jobs)}"
            raise Refusal("USAGE", f"there is no job {number}; those that are known: {known}")
        return self._jobs[number]

    def queued(self) -> list[QueuedJob]:
        """Those that wait, the next one first."""
        return [job for job in self if job.state == "QUEUED"]

    def submit(self, submission: Submission, at: float) -> QueuedJob:
        """Puts a job behind the others; Refusal: FULL if too many wait."""
        if len(self.queued()) >= MAX_QUEUED:
            raise Refusal("FULL", f"{MAX_QUEUED} jobs wait already: cancel one, or submit this one later")
        job = QueuedJob(number=self._next, submission=submission, submitted=at)
        self._jobs[job.number] = job
        self._next += 1
        return job

    def begin(self, job: QueuedJob, run: int, at: float) -> None:
        """A job that waited is carried out from now on, with that run id."""
        assert self.current is None, "one job at a time"
        assert job.state == "QUEUED", job
        job.state, job.run, job.started = "STARTING", run, at
        self.current = job

    def joined(self) -> None:
        """A worker is a member of the present job."""
        if self.current is not None and self.current.state == "STARTING":
            self.current.state = "RUNNING"

    def cancel(self, number: int, at: float) -> bool:
        """Takes a job out; returns whether it is the present one, which has to be told to end.

        Raises:
            Refusal: USAGE for a job that there is not, or that has ended otherwise.
        """
        job = self.get(number)
        if job.state in ("DONE", "FAILED"):
            raise Refusal("USAGE", f"job {number} has ended: {job.state.lower()}")
        if job.state == "QUEUED":
            self._close(job, "CANCELLED", Done(CANCELLED, "cancelled while it waited"), at)
        elif job is self.current:
            job.ending = "cancelled"
        return job is self.current

    def end(self, done: Done, last: Reading, at: float) -> QueuedJob:
        """The present job is over and its workers have gone."""
        job = self.current
        assert job is not None, "there is a job to end"
        self.current, job.last = None, last
        if job.ending:
            self._close(job, "CANCELLED", Done(CANCELLED, f"{job.ending} at global step {last.global_step}"), at)
        else:
            self._close(job, "FAILED" if done.exit_code else "DONE", done, at)
        return job

    def _close(self, job: QueuedJob, state: str, done: Done, at: float) -> None:
        job.state, job.exit_code, job.reason, job.ended = state, done.exit_code, done.reason, at
        over = [it for it in self if it.ended is not None]
        for old in over[:-MAX_ENDED]:
            del self._jobs[old.number]
