"""Planted bugs in what becomes of a push, and in ends. `mutants.py` says what finds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulation.shard_model import Shard

from grpc_ps.client.answers import Answers
from grpc_ps.psserver.lead.batches import BatchNumbers
from grpc_ps.psserver.lead.intake import Intake
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.log import Answer, Dismiss, Result
from grpc_ps.psserver.lead.membership import Member, Membership
from grpc_ps.psserver.lead.parts import Parts
from grpc_ps.psserver.lead.shards import Shards
from grpc_ps.psserver.staging import Staging


def decides_by_one_shard(patch: Any) -> None:
    """A push counts as soon as one shard has it."""
    init = Parts.__init__
    patch.setattr(Parts, "__init__", lambda self, shard_count: init(self, 1))


def forgets_to_fence(patch: Any) -> None:
    """What a life that is over still sends counts as its index's: neither shards nor the lead look at incarnations."""
    patch.setattr(Membership, "get", lambda self, worker, incarnation: self._members.get(worker))
    patch.setattr(Shard, "_is_member", lambda self, worker, incarnation: True)
    # Its memory is not what this is about: let it count as kept.
    patch.setattr(Shard, "_dismiss", lambda self, entry: self.kept.add((entry.worker, entry.incarnation, 0)))


def applies_a_resent_push_twice(patch: Any) -> None:
    """A push that is reported again is taken again."""
    whole = Job.whole

    def again(self: Job, shard: int, push: Any, non_finite: str, now: float, squares: Any = ()) -> None:
        member = self.members.get(push.id.worker, push.id.incarnation)
        training = self.training
        if training is not None and member is not None and push.id.sequence == member.sequence and not push.values:
            training._numbers._leases.setdefault(push.batch, member.incarnation)
            training.rounds.add(push)
        whole(self, shard, push, non_finite, now, squares)
        self._proceed(now)

    patch.setattr(Job, "whole", again)
    patch.setattr(BatchNumbers, "use_up", lambda self, number: self._leases.pop(number, None))


def drops_a_kept_push(patch: Any) -> None:
    """The push of a lost worker that a round has is dropped with it."""

    def forgetful(self: Shard, entry: Dismiss) -> None:
        dismiss(self, replace(entry, keep=0))

    dismiss = Shard._dismiss
    patch.setattr(Shard, "_dismiss", forgetful)


def forgets_to_free_a_late_part(patch: Any) -> None:
    """A part that its answer overtakes stays in its place."""
    forget = Staging.forget

    def whole_only(self: Staging, key: Any) -> None:
        if self.whole(key) is not None:
            forget(self, key)
        else:
            worker, incarnation, sequence = key
            self._decided[worker] = max(self._decided.get(worker, (0, 0)), (incarnation, sequence))

    patch.setattr(Staging, "forget", whole_only)


def releases_before_the_update(patch: Any) -> None:
    """A shard sends the parameters that it had before the last update."""
    answer = Shard._answer

    def stale(self: Shard, entry: Answer) -> None:
        version, self.version = self.version, self._previous or self.version
        answer(self, entry)
        self.version = version

    applied = Shard._applied

    def remember(self: Shard, entry: Any, pushes: Any) -> None:
        self._previous = self.history
        applied(self, entry, pushes)

    patch.setattr(Shard, "_previous", 0, raising=False)
    patch.setattr(Shard, "_answer", stale)
    patch.setattr(Shard, "_applied", remember)


def mixes_positions(patch: Any) -> None:
    """A worker takes the newest answer of each shard, whatever their positions."""
    add = Answers.add

    def careless(self: Answers, shard: int, answer: Any) -> Any:
        for other in self._answers:
            if other is not None:
                answer.position = max(answer.position, other.position)
        return add(self, shard, answer)

    patch.setattr(Answers, "add", careless)


def loses_the_wait_of_a_repeated_outcome(patch: Any) -> None:
    """Who asks after a break is told what became of its push, and is not given work any more."""

    def ask(self: Job, worker: int, incarnation: int, sequence: int, now: float, *, out_of_data: bool = False) -> None:
        member = self.members.get(worker, incarnation)
        if member is not None and member.last is not None and not out_of_data and self.done is None:
            last = member.last
            answer = Result(last.sequence, last.outcome, last.staleness, last.parameter, repeated=True)
            self.log.append(Answer(worker, incarnation, self.step, answer))
        else:
            original(self, worker, incarnation, sequence, now, out_of_data=out_of_data)

    original = Job.ask
    patch.setattr(Job, "ask", ask)


def ignores_an_overflow(patch: Any) -> None:
    """An infinite result does not end the job; its shard has nothing to send any more."""
    patch.setattr(Job, "overflow", lambda self, parameter, step, now: None)


def keeps_going_after_a_lost_shard(patch: Any) -> None:
    """A follower that comes back empty is taken as if it had its state."""
    connect = Shards.connect
    patch.setattr(Shards, "connect", lambda self, *args, opened: connect(self, *args, opened=False))


def refuses_values_after_the_end(patch: Any) -> None:
    """Initial values that come too late end their worker with an error."""
    decide = Intake._decide

    def unaware(self: Intake, member: Member, push: Any, non_finite: str, squares: Any, now: float) -> None:
        if push.values:
            self._open(member, push, now)
        else:
            decide(self, member, push, non_finite, squares, now)

    patch.setattr(Intake, "_decide", unaware)
