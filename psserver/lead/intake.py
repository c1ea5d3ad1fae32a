"""Pushes on their way to a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc_ps.psserver.lead.clipping import Squares
from grpc_ps.psserver.lead.log import Result
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.parts import Parts, Push
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.tally import Tally

if TYPE_CHECKING:
    from grpc_ps.psserver.lead.job import Job


class Intake:
    """Takes the reports about pushes, and hands each one on once it is whole everywhere.

    Not guarded: used by the lead's event loop alone.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._parts = Parts(job.shards.count)

    def begun(self, push: Push, now: float) -> bool:
        """A push of gradients has begun to arrive. Returns whether it is decided by that: its round is closed."""
        job = self._job
        member = job.members.get(push.id.worker, push.id.incarnation)
        if member is None or job.training is None or job.done is not None:
            return False
        member.last_beat = now
        next_one = push.id.sequence == member.sequence + 1 and not member.pending
        if not next_one or not job.training.begin(member, push):
            return False
        self._parts.drop(member.incarnation)
        return True

    def whole(self, member: Member, shard: int, push: Push, non_finite: str, squares: Squares, now: float) -> None:
        """A shard holds its part of a member's push; once all do, the push is decided.

        Raises:
            Refusal: INVALID_PUSH for what the member was not to send.
        """
        if push.id.sequence <= max(member.sequence, member.pending):
            return
        whole = self._parts.report(shard, push, non_finite, squares)
        if whole is not None:
            self._decide(member, *whole, now)

    def drop(self, incarnation: int) -> None:
        """Forgets a push that will never be whole."""
        self._parts.drop(incarnation)

    def _decide(self, member: Member, push: Push, non_finite: str, squares: Squares, now: float) -> None:
        job = self._job
        if job.done is not None:
            member.decide(Result(push.id.sequence, "DONE"))
            job.log.append(member.answer(job.step, done=job.done))
        elif push.values:
            self._open(member, push, now)
        elif job.training is None:
            raise Refusal("INVALID_PUSH", f"worker {member.worker} pushes gradients before the job is open")
        else:
            member.whole_at = now
            job.training.decide(member, push, non_finite, squares)

    def _open(self, member: Member, push: Push, now: float) -> None:
        definition = self._job.definition
        if self._job.phase != "OPENING" or definition is None or definition.opener is not member:
            raise Refusal("INVALID_PUSH", f"worker {member.worker} does not open the job")
        self._job.open(push, now)
        member.decide(Result(push.id.sequence, "APPLIED"))
        # Initial values count nowhere.
        member.tally = Tally()
        member.progress = None

    def asked(self, member: Member, sequence: int, *, out_of_data: bool) -> bool:
        """A member asks what to do next, or says that its own data is used up. Returns whether others may be served.

        It gets its last outcome once more, for it may not have heard of it.
        """
        job = self._job
        if sequence > member.sequence:
            return False
        if job.training is not None and out_of_data:
            job.training.exhaust(member)
        last = member.last
        if last is not None and member.owed is None:
            member.owed = Result(last.sequence, last.outcome, last.staleness, last.parameter, repeated=True)
        if job.done is not None:
            job.log.append(member.answer(job.step, done=job.done))
        elif job.training is not None and member.batch is not None:
            job.training.release(member, member.batch)
        else:
            member.waiting = not member.out_of_data
            return True
        return False
