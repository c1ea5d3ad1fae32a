"""Releases: parameters for a member, with the batch number that it computes and a hint at the one after it."""

from __future__ import annotations

from grpc_ps.psserver.lead.batches import BatchNumbers
from grpc_ps.psserver.lead.log import Log, Release
from grpc_ps.psserver.lead.membership import Member, Membership
from grpc_ps.psserver.lead.rounds import Rounds, promised_to_others, slowest_progress


class Releases:
    """Writes releases to the log.

    A member prepares the data of the number that it is hinted, and in a job with tables names the rows for it. So
    there the number is left to it; in rounds it comes to that by itself. Not guarded: used by the lead's event loop
    alone.

    Args:
        promises: whether a number that was hinted is left to who was told: asynchronous, in a job with tables.
    """

    def __init__(self, members: Membership, numbers: BatchNumbers, log: Log, *, promises: bool) -> None:
        self._members = members
        self._numbers = numbers
        self._log = log
        self._promises = promises

    def release(self, member: Member, batch: int, step: int, rounds: Rounds) -> None:
        """Sends a member the parameters of `step`, which is this position's, and the number that it leases."""
        if member.progress is None:
            member.progress = slowest_progress(list(self._members)) or 0
        member.hold(batch, step)
        self._log.append(member.answer(step, Release(batch, self._hint(member, batch, rounds))))

    def _hint(self, member: Member, batch: int, rounds: Rounds) -> int:
        """The number that the member will probably get next; 0 where there is none."""
        if not self._promises or rounds.judges_steps:
            member.promised = 0
            return batch + len(self._members)
        others = promised_to_others(member, [it for it in self._members if not it.out_of_data])
        member.promised = self._numbers.next(others) or 0
        return member.promised
