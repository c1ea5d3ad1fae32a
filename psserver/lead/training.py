"""The open job: decides every whole push and says who computes what next."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from grpc_ps.psserver.lead.batches import BatchNumbers
from grpc_ps.psserver.lead.clipping import Clipping, Squares
from grpc_ps.psserver.lead.log import Apply, Dismiss, Done, Log, Result
from grpc_ps.psserver.lead.membership import Member, Membership
from grpc_ps.psserver.lead.norms import Norms
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.releases import Releases
from grpc_ps.psserver.lead.rounds import rounds_for, weights
from grpc_ps.psserver.lead.saving import TrainingState
from grpc_ps.psserver.lead.schedule import schedule
from grpc_ps.psserver.lead.settings import Settings, Signature, least_workers
from grpc_ps.psserver.lead.steering import Change


class Training:
    """Pushes, rounds and batch numbers of a job from its first step to its last.

    Not guarded: used by the lead's event loop alone.

    Attributes:
        step: the global step: updates applied to the model.
        started: whether enough workers have joined.
        paused: whether nobody gets work.
        factor: what the learning rate of the schedule is multiplied with.
        held: whether nobody gets work for a reason of the job's own: it waits for a checkpoint.
        batches: gradients applied here, and `examples`, of how many examples they were.

    Args:
        parameters: the job's, by name.
        on_update: called after each update is written, with its step and the time.
        state: where to begin.
    """

    def __init__(
        self,
        settings: Settings,
        parameters: Mapping[str, Signature],
        shard_count: int,
        members: Membership,
        log: Log,
        *,
        on_update: Callable[[int, float], None],
        state: TrainingState,
    ) -> None:
        examples, batch_size = int(settings["examples"]), int(settings["batch_size"])
        self.step = state.step
        self.started = state.started
        self.paused = state.paused
        self.factor = state.factor
        self.held = False
        self.batches = self.examples = 0
        self._on_update = on_update
        self.rounds = rounds_for(settings)
        self._target = int(settings["steps"])
        self._rate = schedule(
            str(settings["schedule"]), float(settings["learning_rate"]), int(settings["warmup_steps"])
        )
        self._least = least_workers(settings)
        self._numbers = BatchNumbers(-(-examples // batch_size), int(settings["epochs"]), state.cursor, state.returned)
        self._norms = Norms(Clipping(settings, len(parameters)), shard_count, log)
        with_tables = any(it.table is not None for it in parameters.values())
        self._releases = Releases(members, self._numbers, log, promises=with_tables)
        self._members = members
        self._log = log
        self._lacking_since: float | None = None

    def state(self) -> TrainingState:
        """What a checkpoint of this position keeps."""
        cursor, returned = self._numbers.state()
        return TrainingState(
            step=self.step,
            cursor=cursor,
            returned=returned,
            factor=self.factor,
            paused=self.paused,
            started=self.started,
        )

    @property
    def learning_rate(self) -> float:
        """That of the next update."""
        return self.factor * self._rate(self.step)

    @property
    def lacking(self) -> bool:
        """Whether the open round waits for a worker that is not there."""
        return self._lacking_since is not None

    def take_over(self, before: Training, *, undecided: bool) -> None:
        """Goes on with what members hold of the training before: numbers, and pushes unless these are decided."""
        for member in self._members:
            if member.batch is not None and not member.pending:
                self._numbers.lease(member.batch, member.incarnation)
        if not undecided:
            return
        whole = before.rounds.empty()
        for push in [*whole, *self._norms.take_over(before._norms)]:
            self._numbers.lease(push.batch, push.id.incarnation)
        for push in whole:
            self.rounds.add(push)

    def is_over(self) -> bool:
        """Whether the last step is reached, or the data used up."""
        return bool(self._target and self.step >= self._target) or self._numbers.exhausted()

    def numbers_are_out(self) -> bool:
        """Whether nobody could get a batch number now."""
        return self._numbers.next() is None

    def begin(self, member: Member, push: Push) -> bool:
        """Notes that a push has begun to arrive.

        One whose round is closed is decided without waiting for the rest: then this returns True.
        """
        if not member.may_push(push):
            return False
        member.sending = push
        self._decide_if_late(member)
        return member.sending is None

    def _decide_if_late(self, member: Member) -> None:
        push = member.sending
        if push is not None and not member.pending and self.rounds.is_late(push, self.step):
            self._late(member, push)

    def decide(self, member: Member, push: Push, non_finite: str, squares: Squares) -> None:
        """Takes a push that is whole everywhere: into its round, or refused.

        Raises:
            Refusal: INVALID_PUSH where it is not what the member was to compute.
        """
        sequence = push.id.sequence
        if not member.may_push(push):
            raise Refusal(
                "INVALID_PUSH",
                f"push {sequence} of worker {member.worker} is for batch {push.batch} at step {push.base_step}; "
                f"it holds batch {member.batch} at step {', '.join(map(str, member.base_steps)) or 'none'}",
            )
        if non_finite:
            self._numbers.use_up(push.batch)
            member.decide(Result(sequence, "NON_FINITE", parameter=non_finite))
        elif self.rounds.is_late(push, self.step):
            self._late(member, push)
        else:
            member.pending = sequence
            self._norms.note(push.id, squares)
            self.rounds.add(push)

    def _late(self, member: Member, push: Push) -> None:
        self._numbers.give_back(push.batch)
        member.decide(Result(push.id.sequence, "LATE", staleness=self.step - push.base_step))

    def proceed(self, now: float) -> Done | None:
        """Applies what is due, then gives every worker that waits what it may have; the end, if this reaches it."""
        able = self._able()
        while not self._target or self.step < self._target:
            pushes = self.rounds.take(self._numbers, able) if not self._norms.awaits_mean else []
            if not pushes:
                break
            if (scales := self._norms.scales(pushes)) is not None:
                self._apply(pushes, scales, now)
        else:
            return Done()
        self.started = self.started or len(self._members) >= self.rounds.needed
        members = list(self._members)
        with_data = [member for member in members if not member.out_of_data]
        for member in members:
            self._serve(member, with_data, now)
        lacking = self.started and not self.paused and self.rounds.lacks(self._numbers, able, with_data)
        if not lacking:
            self._lacking_since = None
        elif self._lacking_since is None:
            self._lacking_since = now
        return self._end(members)

    def _able(self) -> int:
        """Workers that may still have data; lost ones that the rounds need are among them, absent backup ones not."""
        return max(self.rounds.needed, len(self._members)) - sum(member.out_of_data for member in self._members)

    def _end(self, members: list[Member]) -> Done | None:
        if self._numbers.exhausted():
            return Done()
        out = sum(member.out_of_data for member in members)
        if out == len(members) >= self.rounds.needed and not any(member.pending for member in members):
            return Done(0, "all workers are out of data")
        return None

    def _serve(self, member: Member, with_data: list[Member], now: float) -> None:
        number = None
        idle = self.paused or self.held or self._norms.awaits_mean
        if member.waiting and self.started and not idle:
            number = self.rounds.choose(member, with_data, self._numbers)
        if number is not None:
            self._numbers.lease(number, member.incarnation)
            self.release(member, number)
            member.let_go(now)
        elif member.owed is not None:
            self._log.append(member.answer(self.step))

    def reduced(self, shard: int, position: int, squares: Squares, now: float) -> None:
        """A shard has made the mean that the entry at `position` asked for."""
        if (closed := self._norms.reduced(shard, position, squares)) is not None:
            self._apply(*closed, now)

    def _apply(self, pushes: list[Push], scales: tuple[float, ...], now: float) -> None:
        rate = self.learning_rate
        before, self.step = self.step, self.step + 1
        self._log.append(Apply(self.step, weights(pushes), rate, scales))
        self.batches += len(pushes)
        for push in pushes:
            self.examples += push.examples
            self._numbers.use_up(push.batch)
            self._norms.forget(push.id)
            member = self._members.get(push.id.worker, push.id.incarnation)
            if member is not None:
                member.decide(Result(push.id.sequence, "APPLIED", staleness=before - push.base_step))
                member.applied_step = self.step
        self._on_update(self.step, now)
        self._tell_late()

    def _tell_late(self) -> None:
        """Decides the pushes whose round has closed: those that are whole, and those on their way."""
        for push in self.rounds.leave_out(self.step):
            self._norms.forget(push.id)
            member = self._members.get(push.id.worker, push.id.incarnation)
            if member is not None:
                self._late(member, push)
            else:
                self._numbers.give_back(push.batch)
                # Its worker is gone, and no answer will name it.
                self._log.append(Dismiss(push.id.worker, push.id.incarnation, detail="its last push came too late"))
        for member in self._members:
            self._decide_if_late(member)

    def release(self, member: Member, batch: int) -> None:
        """Sends a member this position's parameters and the number that it leases."""
        self._releases.release(member, batch, self.step, self.rounds)

    def take_back(self, member: Member) -> None:
        """Queues the number of a member that is lost, unless its push is whole: that one still counts."""
        if member.batch is not None and not member.pending:
            self._numbers.give_back(member.batch)

    def exhaust(self, member: Member) -> None:
        """A member's own data is used up: it gets nothing more, and nobody waits for it."""
        if member.out_of_data:
            return
        self.take_back(member)
        member.run_out()

    def adopt(self, change: Change, settings: Settings) -> None:
        """Takes a change, which made the job's settings these; what is whole already counts by new rules."""
        self.factor = self.factor if change.learning_rate_factor is None else change.learning_rate_factor
        self.paused = self.paused if change.paused is None else change.paused
        if not change.rules():
            return
        waiting = self.rounds.empty()
        self.rounds = rounds_for(settings)
        self._least = least_workers(settings)
        self._lacking_since = None
        for push in waiting:
            self.rounds.add(push)
        for member in self._members:
            # Counts that went on without a bound would bind the fastest to the slowest for long.
            member.progress = None if member.progress is None else 0
        self._tell_late()

    def settle(self, now: float, patience: float) -> bool:
        """Lets a round that has lacked a worker for longer than `patience` close without it; False if it cannot."""
        if self._lacking_since is None or now - self._lacking_since <= patience:
            return True
        self._lacking_since = None
        return self.rounds.settle(self._numbers, self._least, list(self._members))
