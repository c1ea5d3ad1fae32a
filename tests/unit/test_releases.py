"""What a release says: the number, the outcome that is owed, and the number that is hinted."""

from __future__ import annotations

from grpc_ps.psserver.lead.batches import BatchNumbers
from grpc_ps.psserver.lead.log import Answer, Log, Release, Result
from grpc_ps.psserver.lead.membership import Member, Membership
from grpc_ps.psserver.lead.releases import Releases
from grpc_ps.psserver.lead.rounds import Rounds, rounds_for
from grpc_ps.psserver.lead.settings import complete


class Desk:
    """Two members who are given one number after the other."""

    def __init__(self, *, promises: bool, batches: int = 0, **settings: str | int) -> None:
        self.members, self.log = Membership(10.0), Log()
        self.numbers = BatchNumbers(batches, 1 if batches else 0)
        self.rounds: Rounds = rounds_for(complete(settings))
        self.one, self.two = (self.admit(nonce) for nonce in (1, 2))
        self.releases = Releases(self.members, self.numbers, self.log, promises=promises)

    def admit(self, nonce: int) -> Member:
        member = self.members.admit(nonce, None, "", 2, 0.0)
        assert member is not None
        return member

    def give(self, member: Member, step: int = 0) -> Release | None:
        """The release with the next number that is for this member."""
        number = self.rounds.choose(member, list(self.members), self.numbers)
        assert number is not None
        self.numbers.lease(number, member.incarnation)
        self.releases.release(member, number, step, self.rounds)
        *_, (_, answer) = self.log.after(0)
        assert isinstance(answer, Answer)
        return answer.release


def test_a_release_brings_the_owed_outcome_and_what_may_be_pushed_then() -> None:
    desk = Desk(promises=False)
    owed = desk.one.owed = Result(3, "APPLIED")
    desk.one.progress, desk.two.progress, desk.two.waiting = 7, 4, True
    desk.releases.release(desk.one, 0, 5, desk.rounds)
    assert [entry for _, entry in desk.log.after(0)] == [Answer(0, 1, 5, owed, Release(0, 2))]
    assert (desk.one.owed, desk.one.batch, desk.one.base_steps) == (None, 0, [5])
    assert desk.one.progress == 7


def test_a_newcomer_counts_as_the_slowest_does() -> None:
    desk = Desk(promises=False)
    desk.two.progress, desk.two.waiting = 4, True
    desk.give(desk.one)
    assert desk.one.progress == 4


def test_what_was_hinted_is_left_to_who_was_told() -> None:
    desk = Desk(promises=True)
    told = [desk.give(member) for member in (desk.one, desk.two, desk.two, desk.one, desk.two)]
    assert told == [Release(0, 1), Release(2, 3), Release(3, 4), Release(1, 5), Release(4, 6)]


def test_where_nothing_is_promised_the_hint_is_a_guess() -> None:
    desk = Desk(promises=False)
    told = [desk.give(member) for member in (desk.one, desk.two, desk.two, desk.one)]
    assert told == [Release(0, 2), Release(1, 3), Release(2, 4), Release(3, 5)]
    assert desk.one.promised == 0


def test_rounds_promise_nothing() -> None:
    desk = Desk(promises=True, mode="sync", workers=2)
    assert [desk.give(desk.one), desk.give(desk.two)] == [Release(0, 2), Release(1, 3)]
    assert desk.one.promised == 0


def test_at_the_end_of_the_data_nothing_is_hinted() -> None:
    desk = Desk(promises=True, batches=2)
    assert [desk.give(desk.one), desk.give(desk.two)] == [Release(0, 1), Release(1, 0)]
