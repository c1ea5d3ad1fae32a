"""Feeds the decisions on shard 0: brings in the clock, and takes what they wrote to the shards."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TypeVar

from grpc_ps.client.shared.logs import event
from grpc_ps.protos import job_pb2
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.background import Background
from grpc_ps.psserver.checkpoint_keeper import CheckpointKeeper
from grpc_ps.psserver.clock import Clock
from grpc_ps.psserver.commits import Commits
from grpc_ps.psserver.following import Following
from grpc_ps.psserver.job_description import JobDescription
from grpc_ps.psserver.jobs import CLOSE_SECONDS, Jobs
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.log import Dismiss, Done, Entry
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.resuming import Restored
from grpc_ps.psserver.lead.steering import Change
from grpc_ps.psserver.messages import push_of
from grpc_ps.psserver.queue_plan import NewJob, QueuePlan
from grpc_ps.psserver.reception import Reception
from grpc_ps.psserver.refusals import error_of
from grpc_ps.psserver.replay import Replay

TICK = 0.1
"""Seconds from one look at the clock to the next."""
T = TypeVar("T")
logger = logging.getLogger(__name__)


class Coordinator:
    """The lead of a job, on shard 0's event loop.

    Every method runs the decision at once and hands the entries that follow to this shard's replay and to the
    followers. Refusals come out as errors of the tree.

    Attributes:
        ended: set when the job is over and every worker has gone.
        background: what is done beside the decisions; an error in it is told to `on_failure`.
        reception: workers that want to join.
        following: the followers' links.
        commits: the present job's checkpoints; None without.
        folder: that of all checkpoints; None without.
        jobs: those that clients submit.
        description: the job as messages have it; None before a worker opens it.
        rollbacks: times that the job went back to a checkpoint.

    Args:
        new_job: raises Refusal for presets that are not possible, or not with that checkpoint.
        run, generation: of the job; both are random numbers.
        checkpoints: the folder of the job that it begins with.
        folder: that of all checkpoints, which is the same but for a job of the queue.
        restored: the checkpoint to begin from.
        queue: what jobs that clients submit begin with; None where none are taken.
        on_failure: told of an error in a decision that is no refusal: a bug, and this shard is useless then. Told too
            when there is no checkpoint to go back to.
    """

    def __init__(
        self,
        new_job: NewJob,
        replay: Replay,
        chunk_bytes: int,
        on_failure: Callable[[BaseException], None],
        *,
        run: int,
        generation: int,
        checkpoints: CheckpointKeeper | None = None,
        folder: CheckpointKeeper | None = None,
        restored: Restored | None = None,
        queue: QueuePlan | None = None,
    ) -> None:
        self._new_job = new_job
        self.folder = folder
        self.jobs = Jobs(self, queue)
        self.commits = Commits(self, checkpoints) if checkpoints is not None else None
        self.rollbacks = 0
        self.chunk_bytes = chunk_bytes
        self.ended = asyncio.Event()
        self.started_at = time.monotonic()
        self._replay = replay
        self._on_failure = on_failure
        self.background = Background(on_failure)
        self._delivered = 0
        self.following = Following(self)
        self.reception = Reception(self)
        self.description: JobDescription | None = None
        self._clock = Clock()
        self._falling: Job | None = None
        self._asked: tuple[Done, bool | None] | None = None
        self._begin(run, generation, restored)

    def _begin(self, run: int, generation: int, restored: Restored | None) -> None:
        """Begins a generation."""
        self._replay.begin(run, generation)
        self._delivered = 0
        self.description = None
        self.job = self._new_job(run, generation, restored)
        if restored is not None and self.job.saving is not None:
            self.job.saving.committed_at = self.now() - restored.age
        self.specify()

    def begin_run(self, run: int, new_job: NewJob, checkpoints: CheckpointKeeper | None) -> None:
        """Begins another job on a cleared store, as a rollback begins a generation; the one before has ended."""
        before, self.commits = self.commits, Commits(self, checkpoints) if checkpoints is not None else None
        if before is not None and before.keeper is not self.folder:
            self.background.start(before.keeper.close(CLOSE_SECONDS))
        self.following.cut()
        self._new_job, self.rollbacks = new_job, 0
        self._begin(run, secrets.randbits(63) | 1, None)
        self.begin()
        self._stop_as_asked()

    def begin(self) -> None:
        """Begins to write the log."""
        self.act(lambda now: None)

    @property
    def outcome(self) -> Done:
        """What the cluster ends with: as its job did, unless that was one of the queue and over before."""
        done = self.jobs.closing if self.jobs.outlived else self.job.done
        return done or Done()

    @property
    def generation(self) -> int:
        """The present one."""
        return self._replay.identity.generation

    @property
    def spec(self) -> job_pb2.JobSpec | None:
        """The job as it was opened, as messages have it; None before a worker opens it."""
        return self.description.spec if self.description else None

    @property
    def present_spec(self) -> job_pb2.JobSpec | None:
        """The job with its settings as they are now."""
        return self.description.present() if self.description else None

    def waiting_for(self) -> str:
        """What the job waits for, or the cluster for a job; for people."""
        return self.job.waiting_for() or self.jobs.waiting_for()

    def now(self) -> float:
        """The time that the decisions see, in seconds."""
        return self._clock.now()

    def act(self, decision: Callable[[float], T]) -> T:
        """Runs a decision at the present time and carries out what follows."""
        try:
            return decision(self.now())
        except Refusal as refusal:
            raise error_of(refusal) from refusal
        except Exception as error:
            # Half a decision may be taken: nobody can go on from that.
            self._on_failure(error)
            raise
        finally:
            self._flush()

    def _flush(self) -> None:
        # Shards open a job by its description.
        self.specify()
        log = self.job.log
        while self._delivered < log.position and not self.job.fallen:
            entries = list(log.after(self._delivered))
            self._delivered = log.position
            if self.job.shards.count == 1:
                log.trim(log.position)
            for position, entry in entries:
                self._note(entry)
                self._replay.deliver(position, entry)
            self.following.wake()
        if self.commits is not None:
            self.commits.look()
        if self.job.fallen and self._falling is not self.job:
            self._falling = self.job
            self.background.start(self._go_back(self.job))
        if self.job.finished() and self.jobs.dismissed():
            self.ended.set()
        self.reception.look(self.job)

    async def _go_back(self, fallen: Job) -> None:
        """Begins another generation from the newest checkpoint, or anew if nothing has been saved yet.

        Raises:
            CheckpointError: what was saved is not there any more, or is not read in time.
        """
        if self.commits is None:
            raise LookupError("nowhere to go back to")
        generation = secrets.randbits(63) | 1
        self.following.cut()
        self._replay.begin(fallen.run, generation)
        restored = await self.commits.newest(fallen)
        self.rollbacks += 1
        self._begin(fallen.run, generation, restored)
        event(logger, "rollback", from_step=fallen.step, to_step=self.job.step, why=fallen.fallen)
        self.begin()
        self._stop_as_asked()

    def _stop_as_asked(self) -> None:
        """Ends a job that has begun after the lead was told to end."""
        if self._asked is not None:
            done, save = self._asked
            self.stop(done, save=save)

    def _note(self, entry: Entry) -> None:
        if isinstance(entry, Dismiss):
            event(logger, "worker_gone", worker=entry.worker, incarnation=entry.incarnation, why=entry.detail or "left")

    async def run(self) -> None:
        """Lets time pass for the decisions, until the job is over."""
        while not self.ended.is_set():
            await asyncio.sleep(TICK)
            self._clock.tick()
            saving = self.job.saving
            failures = saving.failures if saving is not None else 0
            self.act(self.job.tick)
            self.jobs.look()
            if saving is not None and saving.failures > failures:
                # It took too long; whatever else makes one fail is told where it happens.
                event(logger, "checkpoint_failed", logging.WARNING, why=saving.error)

    def specify(self) -> None:
        """Describes the job to the shards, if it has been defined anew."""
        definition = self.job.definition
        if definition is None or (self.description is not None and self.description.describes(definition)):
            return
        self.description = JobDescription(definition, self.job.shards.count)
        self._replay.expect(self.description.spec)

    def begun(self, header: PushHeader) -> None:
        """A push has begun to arrive at this shard."""
        training = self.job.training
        if training is not None and training.rounds.judges_steps:
            self.act(lambda now: self.job.begun(push_of(header), now))

    def ask(self, worker: int, incarnation: int, sequence: int, *, out_of_data: bool = False) -> None:
        """A worker asks what to do next, or says that its own data is used up."""
        self.act(lambda now: self.job.ask(worker, incarnation, sequence, now, out_of_data=out_of_data))

    def report(self, worker: int, incarnation: int, global_step: int, metrics: Mapping[str, float]) -> None:
        """A worker has evaluated."""
        self.act(lambda now: self.job.report(worker, incarnation, global_step, metrics, now))
        shown = " ".join(f"{name}:{value:.6g}" for name, value in sorted(metrics.items()))
        event(logger, "evaluated", worker=worker, evaluated_step=global_step, metrics=shown)
        if self.commits is not None:
            self.background.start(self.commits.keeper.note(metrics, global_step))

    def change(self, change: Change) -> None:
        """Changes the job while it runs."""
        self.act(lambda now: self.job.change(change, now))
        stated = {name: value for name, value in asdict(change).items() if value is not None}
        event(logger, "changed", global_step=self.job.step, position=self.job.log.position, **stated)

    def beat(
        self, worker: int, incarnation: int, local_step: int, loss: float | None, times: Mapping[str, float]
    ) -> Member:
        """A worker lives, and tells its own count of steps, its last applied push's loss, and where its time went."""
        member = self.act(lambda now: self.job.beat(worker, incarnation, now))
        member.local_step, member.loss, member.times = local_step, loss, times
        return member

    def leave(self, worker: int, incarnation: int) -> None:
        """A worker goes."""
        self.jobs.leaves(worker, incarnation)
        self.act(lambda now: self.job.leave(worker, incarnation, now))

    def pin(self, snapshot: int, *, averages: bool, listed: int) -> None:
        """Pins a snapshot for a reader, who knows so many shards."""
        self.act(lambda now: self.job.pins.add(snapshot, now, averages=averages, listed=listed))

    def stop(self, done: Done, *, save: bool | None = None) -> None:
        """Ends the job, for good; see `Job.stop`."""
        self._asked = done, save
        self.job.keep_alive = False
        self.jobs.close(done)
        self.act(lambda now: self.job.stop(done, now, save=save, hurried=True))

    async def close(self, seconds: float) -> None:
        """Gives the folders of checkpoints back."""
        of_job = self.commits.keeper if self.commits is not None else None
        for keeper in (of_job if of_job is not self.folder else None, self.folder):
            if keeper is not None:
                await keeper.close(seconds)
