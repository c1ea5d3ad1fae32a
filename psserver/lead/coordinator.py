"""Feeds the decisions on shard 0: brings in the clock, and takes what they wrote to the shards."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from grpc_ps.client.shared.errors import (
    CheckpointError,
    InvalidPush,
)
from grpc_ps.client.shared.logs import event
from grpc_ps.protos import coordination_pb2 as wire
from grpc_ps.protos import job_pb2
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.checkpoint_keeper import CheckpointKeeper
from grpc_ps.psserver.clock import Clock
from grpc_ps.psserver.commits import Commits
from grpc_ps.psserver.following import Following
from grpc_ps.psserver.job_description import JobDescription
from grpc_ps.psserver.jobs import CLOSE_SECONDS, Jobs
from grpc_ps.psserver.lead.clipping import Squares
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.log import Dismiss, Done, Entry
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.resuming import Restored
from grpc_ps.psserver.lead.steering import Change
from grpc_ps.psserver.messages import push_of, saved_part
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
        reception: workers that want to join.
        following: the followers' links.
        commits: the present job's checkpoints; None without.
        folder: that of all checkpoints; None without.
        jobs: those that clients submit.
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
        self._delivered = 0
        self.following = Following(self)
        self.reception = Reception(self)
        self._description: JobDescription | None = None
        self._clock = Clock()
        self._falling: Job | None = None
        self._asked: tuple[Done, bool | None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._begin(run, generation, restored)

    def _begin(self, run: int, generation: int, restored: Restored | None) -> None:
        """Begins a generation."""
        self._replay.begin(run, generation)
        self._delivered = 0
        self._description = None
        self.job = self._new_job(run, generation, restored)
        if restored is not None and self.job.saving is not None:
            self.job.saving.committed_at = self.now() - restored.age
        self.specify()

    def begin_run(self, run: int, new_job: NewJob, checkpoints: CheckpointKeeper | None) -> None:
        """Begins another job on a cleared store, as a rollback begins a generation; the one before has ended."""
        before, self.commits = self.commits, Commits(self, checkpoints) if checkpoints is not None else None
        if before is not None and before.keeper is not self.folder:
            self.start(before.keeper.close(CLOSE_SECONDS))
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
        return self._description.spec if self._description else None

    @property
    def present_spec(self) -> job_pb2.JobSpec | None:
        """The job with its settings as they are now."""
        return self._description.present() if self._description else None

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
        self._keep_checkpoints()
        if self.job.fallen and self._falling is not self.job:
            self._falling = self.job
            self.start(self._go_back(self.job))
        if self.job.finished() and self.jobs.dismissed():
            self.ended.set()
        self.reception.look(self.job)

    def _keep_checkpoints(self) -> None:
        """Has those done whose parts are written, and what failed removed."""
        saving, spec = self.job.saving, self.spec
        if saving is None or spec is None or self.commits is None or self.job.fallen:
            return
        if (attempt := saving.to_commit()) is not None:
            self.start(self.commits.commit(self.job, attempt, spec.plan_fingerprint))
        for folder in saving.to_discard():
            self.start(self.commits.keeper.discard(folder))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Has something done beside the decisions; an error in it is told to `on_failure`."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)

    async def _go_back(self, fallen: Job) -> None:
        """Begins another generation from the newest checkpoint, or anew if nothing has been saved yet.

        Raises:
            CheckpointError: what was saved is not there any more, or is not read in time.
        """
        if self.commits is None or fallen.saving is None:
            raise LookupError("nowhere to go back to")
        generation, keeper, patience = secrets.randbits(63) | 1, self.commits.keeper, fallen.limits.recovery
        self.following.cut()
        self._replay.begin(fallen.run, generation)
        try:
            restored = await asyncio.wait_for(keeper.newest(cold=False), patience)
        except asyncio.TimeoutError:
            raise CheckpointError(f"{keeper.directory}: no checkpoint could be read within {patience:g} s") from None
        if restored is None and fallen.saving.committed is not None:
            raise CheckpointError(f"{keeper.directory}: the checkpoint of step {fallen.saving.committed} is gone")
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
        if definition is None or (self._description is not None and self._description.describes(definition)):
            return
        self._description = JobDescription(definition, self.job.shards.count)
        self._replay.expect(self._description.spec)

    def begun(self, header: PushHeader) -> None:
        """A push has begun to arrive at this shard."""
        training = self.job.training
        if training is not None and training.rounds.judges_steps:
            self.act(lambda now: self.job.begun(push_of(header), now))

    def whole(self, shard: int, report: wire.Whole) -> None:
        """A shard holds its part of a push.

        Raises:
            InvalidPush: the report is not what this job asks for.
        """
        squares = self._squares(shard, report.squares)
        self.act(lambda now: self.job.whole(shard, push_of(report.header), report.non_finite, now, squares))

    def reduced(self, shard: int, report: wire.Reduced) -> None:
        """A shard has made a mean.

        Raises:
            InvalidPush: the report is not what this job asks for.
        """
        squares = self._squares(shard, report.squares)
        self.act(lambda now: self.job.reduced(shard, report.position, squares, now))

    def _squares(self, shard: int, sums: Sequence[float]) -> Squares:
        """Says which parameter each sum belongs to."""
        if not sums:
            return ()
        owners = self._description.owners[shard] if self._description else ()
        if len(sums) != len(owners):
            raise InvalidPush(f"shard {shard} reports {len(sums)} sums of squares, it has {len(owners)} blocks")
        return tuple(zip(owners, sums, strict=True))

    def ask(self, worker: int, incarnation: int, sequence: int, *, out_of_data: bool = False) -> None:
        """A worker asks what to do next, or says that its own data is used up."""
        self.act(lambda now: self.job.ask(worker, incarnation, sequence, now, out_of_data=out_of_data))

    def report(self, worker: int, incarnation: int, global_step: int, metrics: Mapping[str, float]) -> None:
        """A worker has evaluated."""
        self.act(lambda now: self.job.report(worker, incarnation, global_step, metrics, now))
        shown = " ".join(f"{name}:{value:.6g}" for name, value in sorted(metrics.items()))
        event(logger, "evaluated", worker=worker, evaluated_step=global_step, metrics=shown)
        if self.commits is not None:
            self.start(self.commits.keeper.note(metrics, global_step))

    def change(self, change: Change) -> None:
        """Changes the job while it runs."""
        self.act(lambda now: self.job.change(change, now))
        stated = {name: value for name, value in asdict(change).items() if value is not None}
        event(logger, "changed", global_step=self.job.step, position=self.job.log.position, **stated)

    def beat(
        self, worker: int, incarnation: int, local_step: int, loss: float | None, times: Mapping[str, float]
    ) -> Member:
        """A worker lives, and tells its own count of steps, its last loss, and where its time went."""
        member = self.act(lambda now: self.job.beat(worker, incarnation, now))
        member.local_step, member.loss, member.times = local_step, loss, times
        return member

    def leave(self, worker: int, incarnation: int) -> None:
        """A worker goes."""
        self.act(lambda now: self.job.leave(worker, incarnation, now))

    def pin(self, snapshot: int, *, averages: bool) -> None:
        """Pins a snapshot for a reader."""
        self.act(lambda now: self.job.pin(snapshot, now, averages=averages))

    def unpin(self, shard: int, snapshot: int) -> None:
        """A shard has let go of a snapshot: a reader has had it."""
        self.job.pins.drop(shard, snapshot)

    def saved(self, shard: int, report: wire.Saved) -> None:
        """A shard has written its part of a checkpoint, or could not."""
        if report.non_finite:
            self.act(lambda now: self.job.stop(Done(5, report.error), now))
        elif report.error:
            event(logger, "checkpoint_failed", logging.WARNING, shard=shard, why=report.error)
        self.act(lambda now: self.job.saved(shard, saved_part(report), now))

    def leaving(self, shard: int) -> None:
        """A shard was told to end."""
        event(logger, "shard_leaving", shard=shard)
        self.act(lambda now: self.job.leaving(shard, now))

    def overflow(self, parameter: str, step: int) -> None:
        """An update went wrong on some shard."""
        self.act(lambda now: self.job.overflow(parameter, step, now))

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
