"""Feeds the queue of jobs on shard 0: begins them one after the other, and has standing workers carry them out."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from grpc_ps.client.shared.endings import CANCELLED
from grpc_ps.client.shared.errors import CheckpointError, Mismatch, UsageError
from grpc_ps.client.shared.logs import event
from grpc_ps.psserver.checkpoint_keeper import CheckpointKeeper
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.queue import Queue, QueuedJob, Reading, Submission
from grpc_ps.psserver.lead.settings import Settings, complete
from grpc_ps.psserver.lead.standing import Standing, places
from grpc_ps.psserver.queue_file import job_folder, to_json
from grpc_ps.psserver.queue_plan import QueuePlan, is_idle, reading_of, taken
from grpc_ps.psserver.queue_waits import cluster_waits_for, queued_waits_for
from grpc_ps.psserver.refusals import decided

if TYPE_CHECKING:
    from grpc_ps.psserver.lead.coordinator import Coordinator

CLOSE_SECONDS = 5.0
"""For a folder of checkpoints to be given back."""

logger = logging.getLogger(__name__)


class Jobs:
    """The queue and the workers that stand by. Not guarded: used by the lead's event loop alone.

    Attributes:
        queue, standing: the decisions; to be looked at.
        plan: how jobs are begun, None where none are taken.
        closing: how the cluster ends, None before.
        outlived: the last job of the queue had ended before, so its end is not the cluster's.
    """

    def __init__(self, lead: Coordinator, plan: QueuePlan | None) -> None:
        self.queue = plan.kept.queue if plan is not None else Queue()
        self.standing = Standing(plan.lease if plan is not None else 0.0)
        self._lead = lead
        self.plan = plan
        self.closing: Done | None = None
        self.outlived = False
        self._changed = asyncio.Event()
        self._seen = Reading()
        self._told: list[tuple[float | None, int | None]] = []
        self._began = time.monotonic()
        self._run = plan.kept.run if plan is not None else 0
        self._beginning = False
        self._places = (0, 0)

    @property
    def recovery(self) -> float:
        """Seconds that a lead which is gone may take to come back; 0 where nothing is saved."""
        return self.plan.recovery if self.plan is not None else 0.0

    async def submit(self, submission: Submission) -> int:
        """Puts a job into the queue and returns its number; where the queue is kept on the disk it is there then.

        Raises:
            UsageError: this cluster takes no jobs. Mismatch: settings that are not possible. Full: too many wait.
            CheckpointError: the queue cannot be written.
        """
        self._check(self.demand(), submission)
        if self.closing is not None:
            raise UsageError("the cluster is about to end")
        job = decided(lambda: self.queue.submit(submission, time.time()))
        try:
            await self._write()
        except CheckpointError:
            if job.state == "QUEUED":
                self.queue.cancel(job.number, time.time())
                raise
        event(logger, "job_submitted", job=job.number, model=submission.model, name=submission.name)
        self._tell()
        return job.number

    def _check(self, plan: QueuePlan, submission: Submission) -> None:
        """Refuses settings that are not possible here: Mismatch."""
        for name, value in submission.stated.items():
            if plan.presets.get(name, value) != value:
                raise Mismatch(f"{name}: shard 0 has {plan.presets[name]!r}, the job {value!r}")
        settings = decided(lambda: self.settings(submission))
        if settings["mode"] == "sync" and "workers" not in {**plan.presets, **submission.stated}:
            raise Mismatch("workers: a job in rounds has to say how many: --workers N")

    def cancel(self, number: int) -> QueuedJob:
        """Takes a job out, or ends it. UsageError where that is not possible."""
        job = decided(lambda: self.queue.get(number))
        begun = job is self.queue.current and job.run == self._lead.job.run
        if begun and self._lead.job.done is not None and not job.ending:
            raise UsageError(f"job {number} has ended: its workers are leaving")
        if decided(lambda: self.queue.cancel(number, time.time())) and begun:
            self._stop_cancelled()
        event(logger, "job_cancelled", job=number)
        self._changed_queue()
        return job

    def _stop_cancelled(self) -> None:
        self._lead.act(lambda now: self._lead.job.stop(Done(0, CANCELLED), now, hurried=True))

    def ending(self, job: QueuedJob) -> Done | None:
        """How a job ends that ends with the cluster; a lead that finds it on the disk goes on with it."""
        return self._lead.job.done if self.closing is not None and job is self.queue.current else None

    def reading(self, job: QueuedJob) -> Reading:
        """Where a job is, or was when it ended."""
        return self._read() if job is self.queue.current else job.last

    @property
    def present(self) -> QueuedJob | None:
        """The job that is to be carried out now; None while there is none, or its end has come."""
        current, job = self.queue.current, self._lead.job
        return current if current is not None and current.run == job.run and job.done is None else None

    @property
    def present_number(self) -> int:
        """Number of the job that is, or was last, on the shards; 0 for one that a worker brought."""
        return next((job.number for job in self.queue if job.run == self._lead.job.run), 0)

    @property
    def running_seconds(self) -> float:
        """Seconds since the present run, or its generation, began."""
        return time.monotonic() - self._began

    def places(self, job: QueuedJob) -> int:
        """How many standing workers a job gets. Asked again and again for each that waits, so it is found once."""
        if self._places[0] != job.number:
            self._places = job.number, places(self.settings(job.submission), job.submission.members)
        return self._places[1]

    @property
    def earlier_runs(self) -> list[int]:
        """Runs that are over, and that the folder of checkpoints knows: the next job's may be unknown to a shard."""
        known = {job.run for job in self.queue} | {self.plan.first_run if self.plan is not None else 0}
        return sorted(known - {0, self._lead.job.run})

    def waiting_for(self) -> str:
        """What the cluster waits for while no job is carried out, for people; empty where that is nobody's concern."""
        return cluster_waits_for(self, self._lead.job)

    def queued_waits_for(self, job: QueuedJob) -> str:
        """What a job in the queue waits for, for people; empty where it is about to begin."""
        return queued_waits_for(self, job, self._lead.job)

    def look(self) -> None:
        """Time has passed: the present job may have ended, and the next one begin."""
        if self.plan is None or self._beginning:
            return
        for gone in self.standing.expire(self._lead.now()):
            event(logger, "standing_worker_gone", name=gone.name)
        if self.closing is None and self.queue.current is not None:
            self._follow(self.queue.current, self._lead.job)
        if self.closing is None and self.queue.current is None:
            self._begin_next(self._lead.job)

    def _follow(self, current: QueuedJob, job: Job) -> None:
        if current.ending and current is self.present and not job.fallen:
            # It has gone back to a checkpoint, or this lead has come back, since it was told to end.
            self._stop_cancelled()
        if len(job.members):
            self.queue.joined()
            self._seen = self._read()
            return
        failed = self.standing.failure(current)
        if job.done is None and not job.fallen and failed is not None:
            self._lead.act(lambda now: job.stop(failed, now))
        if job.done is not None:
            self._end(current, job.done)

    def _end(self, current: QueuedJob, done: Done) -> None:
        first = self.standing.first_failure()
        if done.exit_code == 4 and first and first not in done.reason:
            done = Done(4, f"{done.reason}; {first}")
        self.queue.end(done, self._read(), time.time())
        shown = {"exit_code": current.exit_code, "reason": current.reason}
        event(logger, f"job_{current.state.lower()}", job=current.number, global_step=self._lead.job.step, **shown)
        self._changed_queue()

    def _begin_next(self, job: Job) -> None:
        queued = self.queue.queued()
        if self.plan is None or not queued or not len(self.standing) or not is_idle(job):
            return
        self._beginning = True
        self._lead.background.start(self._begin(self.plan, queued[0]))

    async def _begin(self, plan: QueuePlan, job: QueuedJob) -> None:
        """Begins a job, with a folder for its checkpoints where others have one; if that cannot be it has failed."""
        keeper, run = None, secrets.randbits(63) | 1
        try:
            self._check(plan, job.submission)
            if plan.folder is not None:
                keeper = plan.folder.of_job(job_folder(job.number))
                run = await taken(keeper, run)
            # It may have been cancelled meanwhile, the cluster told to end, or a worker have brought a job.
            if job.state == "QUEUED" and self.closing is None and is_idle(self._lead.job):
                await self._begin_as(plan, job, run, keeper)
                return
        except (CheckpointError, Mismatch) as error:
            if self.queue.current is not job:
                self.queue.begin(job, run, time.time())
            self.queue.end(Done(error.exit_code, str(error)), Reading(), time.time())
            event(logger, "job_failed", logging.WARNING, job=job.number, reason=job.reason)
            self._changed_queue()
        finally:
            self._beginning = False
        if keeper is not None:
            await keeper.close(CLOSE_SECONDS)

    async def _begin_as(self, plan: QueuePlan, job: QueuedJob, run: int, keeper: CheckpointKeeper | None) -> None:
        self.queue.begin(job, run, time.time())
        before, self._run = self._run, run
        # Before any process of it can do anything: a lead that comes back must know which job it was.
        try:
            await self._write()
        except CheckpointError:
            self._run = before
            raise
        self.standing.begin()
        self._seen, self._began, self._told = Reading(), time.monotonic(), []
        event(logger, "job_begins", job=job.number, run=f"{run:016x}", standing=len(self.standing))
        self._lead.begin_run(run, plan.new_job(job), keeper)
        if job.ending:
            self._stop_cancelled()
        self._tell()

    def _changed_queue(self) -> None:
        """Tells who waits, and has the queue written."""
        self._tell()
        self._lead.background.start(self._try_to_write())

    async def _try_to_write(self) -> None:
        try:
            await self._write()
        except CheckpointError as error:
            event(logger, "queue_not_written", logging.WARNING, why=error)

    async def _write(self) -> None:
        if self.plan is not None and self.plan.folder is not None:
            await self.plan.folder.write_queue(to_json(self.queue, self._run))

    def close(self, done: Done) -> None:
        """The cluster ends: no job begins any more, and standing workers are told."""
        if self.closing is None:
            self.outlived = self._lead.job.queued and self._lead.job.done is not None
        self.closing = done
        self._tell()

    def dismissed(self) -> bool:
        """Whether every standing worker has been told that the cluster ends, or is gone."""
        return not len(self.standing)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def news(self, seconds: float) -> None:
        """Waits until there is something new for standing workers, at most so long."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def now(self) -> float:
        """The time that the decisions see, in seconds."""
        return self._lead.now()

    def demand(self) -> QueuePlan:
        """What jobs begin with; UsageError where none are taken."""
        if self.plan is None:
            raise UsageError("this cluster takes no jobs: start shard 0 with --keep-alive, or a worker with --model")
        return self.plan

    def settings(self, submission: Submission) -> Settings:
        """What a job would have, as far as the lead knows: what data has is the workers' to say."""
        presets = self.plan.presets if self.plan is not None else {}
        return complete(presets, submission.stated, {"examples": 1})

    def leaves(self, worker: int, incarnation: int) -> None:
        """A member goes. Where the job is done, its last loss stays one of those that the job's is made of."""
        job = self._lead.job
        member = job.members.get(worker, incarnation)
        if member is not None and job.done is not None and self.queue.current is not None:
            self._told.append((member.loss, member.applied_step))

    def _read(self) -> Reading:
        return reading_of(self._lead.job, self._seen, self._told)
