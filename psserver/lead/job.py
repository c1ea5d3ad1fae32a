"""The job: what happened goes in, entries of the log come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from grpc_ps.psserver.lead.attendance import Attendance
from grpc_ps.psserver.lead.clipping import Squares
from grpc_ps.psserver.lead.durability import Durability
from grpc_ps.psserver.lead.entrance import Entrance
from grpc_ps.psserver.lead.evaluation import Evaluation
from grpc_ps.psserver.lead.intake import Intake
from grpc_ps.psserver.lead.joining import Definition, JoinReply, JoinRequest
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Done, Log, Open, Result, Stop
from grpc_ps.psserver.lead.membership import Member, Membership
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.pins import Pins
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.resuming import Restored, begin_restored, restarted
from grpc_ps.psserver.lead.saving import SavePlan, Saving, TrainingState
from grpc_ps.psserver.lead.settings import Settings, Value, check_agreement, complete
from grpc_ps.psserver.lead.shards import Shards
from grpc_ps.psserver.lead.steering import Change
from grpc_ps.psserver.lead.training import Training
from grpc_ps.psserver.lead.waits import Waits


class Job:
    """The state machine of shard 0, for one generation.

    Every method says what happened; afterwards `log` has the entries that follow from it. Not guarded and never
    blocks: used by the lead's event loop alone, with times of one monotonic clock in seconds.

    Attributes:
        phase: EMPTY, OPENING, RESTORING, RUNNING or STOPPED.
        done: how it ended, None before.
        fallen: why this generation is over while the job is not: a shard has lost its state, and all go back to a
            checkpoint. Empty as long as it goes on.
        attendance: what becomes of it when shards come and go.
        durability: what has to be on the disk first; `saving` is the checkpoints, None without.
        evaluation: who evaluates, and what came of it.
        restored: the checkpoint that this generation began from, with what workers have stated anew; None without.
        intake: pushes that are not decided.
        pins: the snapshots that readers hold.
        queued: it is one of several that clients have submitted. Only its own workers open it, nobody goes on with it,
            and its end is not the cluster's, however it ends.

    Args:
        presets: settings that the lead fixes.
        generation: names the checkpoints' folders while they are written.
        plan: when checkpoints are written; None means never, and that a lost shard ends the job.
        restored: the checkpoint to begin from.
        keep_alive: a job that is done well may be gone on with, so it is finished only once this is taken back.
    """

    def __init__(
        self,
        *,
        run: int,
        shard_count: int,
        presets: Settings,
        limits: Limits,
        generation: int = 0,
        plan: SavePlan | None = None,
        restored: Restored | None = None,
        keep_alive: bool = False,
        queued: bool = False,
    ) -> None:
        self.run = run
        self.queued = queued
        self.limits = limits
        self.keep_alive = keep_alive
        self.log = Log()
        self.shards = Shards(shard_count)
        self.members = Membership(limits.lease)
        self.phase = "RESTORING" if restored else "EMPTY"
        self.opened = restored.opened_count if restored else 0
        self.done: Done | None = None
        self.fallen = ""
        self.definition: Definition | None = None
        self.evaluation = Evaluation()
        self.training: Training | None = None
        self.saving: Saving | None = None
        if plan is not None:
            committed = restored.state.step if restored else None
            self.saving = Saving(plan, limits, shard_count, generation, committed)
        self.durability = Durability(self)
        self._entrance = Entrance(presets, awaits_first=restored is not None and restored.cold)
        self.attendance = Attendance(self, restored)
        self.intake = Intake(self)
        self.pins = Pins(self)
        self.waits = Waits(limits)
        self.restored = restored
        # Whether data ends is known when a worker comes.
        check_agreement(complete(presets, {"examples": 1}), presets)
        if restored is not None:
            begin_restored(self, restored)
            self.attendance.complete()

    @property
    def awaits_first(self) -> bool:
        """Whether the job has begun from a checkpoint, and no worker has joined since."""
        return self._entrance.awaits_first

    @property
    def restored_step(self) -> int | None:
        """Step of the checkpoint that this generation began from, None if it began from first values."""
        return self.restored.state.step if self.restored else None

    @property
    def step(self) -> int:
        """The global step."""
        return self.training.step if self.training else 0

    def new_training(self, settings: Settings, state: TrainingState) -> Training:
        """The training of the job as it is defined, with these settings, from that state on."""
        assert self.definition is not None, "a job that trains is defined"
        return Training(
            settings,
            self.definition.parameters,
            self.shards.count,
            self.members,
            self.log,
            on_update=lambda step, now: self.durability.updated(step, now),
            state=state,
        )

    def join(self, request: JoinRequest, now: float) -> JoinReply:
        """Makes a worker a member, or the opener, or tells it what it waits for.

        Raises:
            Refusal: WRONG_RUN, MISMATCH, CHECKPOINT, FENCED or FULL.
        """
        return self._entrance.join(self, request, now)

    def restate(self, settings: dict[str, Value]) -> bool:
        """Goes on with other settings, with a job that is done, too; False if nothing would be left to do then."""
        again = restarted(self, settings)
        if again is None:
            return False
        if self.done is not None or self.durability.is_ending:
            self.done, self.phase, self.durability = None, "RUNNING", Durability(self)
        self.training = again
        return True

    def keep_stated(self) -> None:
        """What a worker stated anew holds also behind a rollback to the checkpoint that the job went on from."""
        now = self.definition
        if now is not None and self.restored is not None:
            self.restored = replace(
                self.restored, settings=dict(now.settings), opened=now.opened, parameters=now.parameters
            )

    def waiting_for(self) -> str:
        """What keeps the job from going on, for people; empty while it runs."""
        return self.waits.reason(self)

    def begun(self, push: Push, now: float) -> None:
        """A push of gradients has begun to arrive; if its round is closed it is answered without the rest."""
        if self.intake.begun(push, now):
            self._proceed(now)

    def whole(self, shard: int, push: Push, non_finite: str, now: float, squares: Squares = ()) -> None:
        """A shard holds its part of a push; once all do, the push is decided."""
        member = self.members.get(push.id.worker, push.id.incarnation)
        if member is None:
            return
        member.last_beat = now
        try:
            self.intake.whole(member, shard, push, non_finite, squares, now)
        except Refusal as refusal:
            self._entrance.lose(self, member, refusal)
        self._proceed(now)

    def open(self, push: Push, now: float) -> None:
        """The first values of the job are whole."""
        assert self.definition is not None, "a job that is opened is defined"
        self.training = self.new_training(self.definition.settings, TrainingState())
        self.waits.begin()
        self.phase = "RUNNING"
        self.opened += 1
        self.log.append(Open(push.id))
        self.durability.opened(now)

    def reduced(self, shard: int, position: int, squares: Squares, now: float) -> None:
        """A shard has made the mean that the entry at `position` asked for."""
        if self.training is not None and self.done is None:
            self.training.reduced(shard, position, squares, now)
            self._proceed(now)

    def ask(self, worker: int, incarnation: int, sequence: int, now: float, *, out_of_data: bool = False) -> None:
        """A worker that is attached everywhere asks what to do next; `sequence` is the last push it sent."""
        member = self.members.get(worker, incarnation)
        if member is not None and self.intake.asked(member, sequence, out_of_data=out_of_data):
            self._proceed(now)

    def _proceed(self, now: float) -> None:
        idle = (
            self.phase != "RUNNING" or self.durability.is_ending or self.awaits_first or bool(self.attendance.leavers)
        )
        if self.training is not None and not idle and (done := self.training.proceed(now)) is not None:
            self.stop(done, now)

    def committed(self, folder: str, error: str, now: float) -> None:
        """The lead has made a checkpoint of the parts of an attempt, or could not."""
        self.durability.committed(folder, error, now)
        self.attendance.committed(now)
        self._proceed(now)

    def beat(self, worker: int, incarnation: int, now: float) -> Member:
        """Keeps a member's lease.

        Raises:
            Refusal: FENCED, where the caller is no member any more.
        """
        return self.members.beat(worker, incarnation, now)

    def report(self, worker: int, incarnation: int, global_step: int, metrics: Mapping[str, float], now: float) -> None:
        """A worker has evaluated the values of a step; that may end the job.

        Raises:
            Refusal: FENCED, where the caller is no member any more; USAGE for one that does not hold the lease to
                evaluate, and for a step that is yet to come.
        """
        member = self.beat(worker, incarnation, now)
        if reason := self.evaluation.take(member, global_step, metrics, self.step):
            self.stop(Done(0, reason), now)

    def change(self, change: Change, now: float) -> None:
        """Changes the job while it runs; Refusal: NOT_OPEN if none does, MISMATCH for what is not possible."""
        definition, training = self.definition, self.training
        if definition is None or training is None or self.phase != "RUNNING":
            raise Refusal("NOT_OPEN", "no job runs here")
        definition.settings = change.settings(definition.settings, len(self.members))
        training.adopt(change, definition.settings)
        self._proceed(now)

    def leave(self, worker: int, incarnation: int, now: float) -> None:
        """A worker goes; its number is handed out again."""
        if (member := self.members.get(worker, incarnation)) is not None:
            self._entrance.lose(self, member, None)
            self._proceed(now)

    def overflow(self, parameter: str, step: int, now: float) -> None:
        """An update's result is not finite: the job ends."""
        self.stop(Done(5, f"the update to step {step} made parameter {parameter!r} infinite or NaN"), now)

    def tick(self, now: float) -> None:
        """Time has passed: leases, links and waits may have ended."""
        if self.fallen:
            return
        self._entrance.expire(self, now)
        self._proceed(now)
        if self.done is not None:
            return
        self.durability.tick(now)
        if (done := self.waits.end(self, now)) is not None:
            self.stop(done, now)

    def stop(self, done: Done, now: float, *, save: bool | None = None, hurried: bool = False) -> None:
        """Ends the job, with a checkpoint of its last step where there are any; by default only if it ends well.

        `hurried` says that somebody told it to end: workers are not waited for as long as otherwise.
        """
        wanted = done.exit_code == 0 if save is None else save
        if self.fallen:
            # The generation that is about to begin is to be stopped in its place.
            return
        if self.done is None and not (wanted and self.durability.end(done, now, hurried=hurried)):
            self.finish(done)

    def finish(self, done: Done) -> None:
        """Every member is told; pushes that were not applied are not applied any more."""
        self.done = done
        self.phase = "STOPPED"
        for member in self.members:
            if member.pending:
                member.decide(Result(member.pending, "DONE"))
            self.log.append(member.answer(self.step, done=done))
        self.log.append(Stop(self.step, done))

    @property
    def is_kept(self) -> bool:
        """Whether the job is done well, and may be gone on with."""
        return self.keep_alive and not self.queued and self.done is not None and self.done.exit_code == 0

    def finished(self) -> bool:
        """Whether the job has ended, for good, the cluster with it, and every worker has gone."""
        stays = self.is_kept or (self.queued and self.keep_alive)
        return self.done is not None and not stays and not len(self.members)
