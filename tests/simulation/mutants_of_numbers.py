"""Planted bugs in batch numbers. `mutants.py` says what finds them."""

from __future__ import annotations

from typing import Any

from grpc_ps.psserver.lead.batches import BatchNumbers
from grpc_ps.psserver.lead.log import Release, Result
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.rounds import SyncRounds
from grpc_ps.psserver.lead.training import Training


def loses_a_returned_number(patch: Any) -> None:
    """A number that comes back is forgotten."""

    def give_back(self: BatchNumbers, number: int) -> None:
        del self._leases[number]

    patch.setattr(BatchNumbers, "give_back", give_back)


def hands_a_number_out_twice(patch: Any) -> None:
    """A returned number stays in the queue when it is leased."""
    lease = BatchNumbers.lease

    def keep(self: BatchNumbers, number: int, holder: int) -> None:
        returned = list(self._returned)
        lease(self, number, holder)
        if number in returned:
            self._returned[:] = returned

    patch.setattr(BatchNumbers, "lease", keep)


def keeps_the_number_of_a_lost_worker(patch: Any) -> None:
    """Nobody gets what a lost worker had."""
    patch.setattr(Training, "take_back", lambda self, member: None)


def retires_the_number_of_a_late_push(patch: Any) -> None:
    """A late push's number is used up instead of returned."""

    def late(self: Training, member: Member, push: Any) -> None:
        self._numbers.use_up(push.batch)
        member.decide(Result(push.id.sequence, "LATE", staleness=self.step - push.base_step))

    patch.setattr(Training, "_late", late)


def releases_without_a_number(patch: Any) -> None:
    """A worker for whom there is no number gets parameters all the same, and computes the next batch."""
    serve = Training._serve

    def careless(self: Training, member: Member, *rest: Any) -> None:
        serve(self, member, *rest)
        if member.waiting and self.started and not self.paused:
            member.waiting = False
            self._log.append(member.answer(self.step, Release(self._numbers._cursor, 0)))

    patch.setattr(Training, "_serve", careless)


def keeps_a_retired_epoch_open(patch: Any) -> None:
    """A round whose last numbers were all refused for good waits for more of that epoch."""
    patch.setattr(SyncRounds, "_is_used_up", lambda self, epoch, numbers: False)
