"""The open job: decides every whole push and says who computes what next."""

from __future__ import annotations

from grpc_ps.psserver.lead.batches import BatchNumbers
from grpc_ps.psserver.lead.log import Answer, Apply, Done, Log, Release, Result
from grpc_ps.psserver.lead.membership import Member, Membership
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.rounds import rounds_for, weights
from grpc_ps.psserver.lead.settings import Settings

KEPT_STEPS = 3
"""Earlier releases of a lease whose steps are remembered: each needs a link that broke."""


class Training:
    """Pushes, rounds and batch numbers of a job from its first step to its last.

    Not guarded: used by the lead's event loop alone. `step` is the global step: updates applied to the model.
    """

    def __init__(self, settings: Settings, members: Membership, log: Log) -> None:
        examples, batch_size = int(settings["examples"]), int(settings["batch_size"])
        self.step = 0
        self.started = False
        self.rounds = rounds_for(settings)
        self._target = int(settings["steps"])
        self._learning_rate = float(settings["learning_rate"])
        self._least = int(settings["min_workers"]) or int(settings["workers"])
        self._numbers = BatchNumbers(-(-examples // batch_size), int(settings["epochs"]))
        self._members = members
        self._log = log
        self._lacking_since: float | None = None

    def decide(self, member: Member, push: Push, non_finite: str) -> None:
        """Takes a push that is whole everywhere: into its round, or refused.

        Raises:
            Refusal: INVALID_PUSH where it is not what the member was to compute.
        """
        sequence = push.id.sequence
        if push.batch != member.batch or push.base_step not in member.base_steps:
            raise Refusal(
                "INVALID_PUSH",
                f"push {sequence} of worker {member.worker} is for batch {push.batch} at step {push.base_step}; "
                f"it holds batch {member.batch} at step {', '.join(map(str, member.base_steps)) or 'none'}",
            )
        if non_finite:
            self._numbers.use_up(push.batch)
            member.decide(Result(sequence, "NON_FINITE", parameter=non_finite))
        elif self.rounds.is_late(push, self.step):
            self._numbers.give_back(push.batch)
            member.decide(Result(sequence, "LATE", staleness=self.step - push.base_step))
        else:
            member.pending = sequence
            self.rounds.add(push)

    def proceed(self, now: float) -> Done | None:
        """Applies what is due, then gives every worker that waits what it may have; the end, if this reaches it."""
        while pushes := self.rounds.take(self._numbers):
            self._apply(pushes)
            if self._target and self.step >= self._target:
                return Done()
        self.started = self.started or len(self._members) >= self.rounds.needed
        for member in self._members:
            self._serve(member)
        lacking = self.started and self.rounds.lacks(self._numbers)
        if not lacking:
            self._lacking_since = None
        elif self._lacking_since is None:
            self._lacking_since = now
        return Done() if self._numbers.exhausted() else None

    def _serve(self, member: Member) -> None:
        if member.waiting and self.started and self.rounds.may_release(member.worker, self._numbers):
            self.release(member, self._numbers.lease(member.incarnation))
        elif member.owed is not None:
            self._log.append(self.answer(member))

    def _apply(self, pushes: list[Push]) -> None:
        before, self.step = self.step, self.step + 1
        self._log.append(Apply(self.step, weights(pushes), self._learning_rate))
        for push in pushes:
            self._numbers.use_up(push.batch)
            member = self._members.get(push.id.worker, push.id.incarnation)
            if member is not None:
                member.decide(Result(push.id.sequence, "APPLIED", staleness=before - push.base_step))

    def release(self, member: Member, batch: int) -> None:
        """Sends a member this position's parameters and the number that it leases."""
        member.batch = batch
        member.base_steps = [*member.base_steps[-KEPT_STEPS:], self.step]
        member.waiting = False
        self._log.append(self.answer(member, release=Release(batch, batch + len(self._members))))

    def answer(self, member: Member, release: Release | None = None, done: Done | None = None) -> Answer:
        """The answer with whatever outcome the member is owed."""
        result, member.owed = member.owed, None
        return Answer(member.worker, member.incarnation, self.step, result, release, done)

    def take_back(self, member: Member) -> None:
        """Queues the number of a member that is lost, unless its push is whole: that one still counts."""
        if member.batch is not None and not member.pending:
            self._numbers.give_back(member.batch)

    def stalled(self, now: float, patience: float) -> bool:
        """Whether the round has lacked a worker for longer than `patience` and cannot close without it."""
        if self._lacking_since is None or now - self._lacking_since <= patience:
            return False
        self._lacking_since = None
        return not self.rounds.settle(self._numbers, self._least)
