"""When a push is applied and with which others: one class a mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from grpc_ps.psserver.lead.batches import BatchNumbers
from grpc_ps.psserver.lead.clipping import to_float32
from grpc_ps.psserver.lead.log import Weighted
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.settings import Settings


class Rounds(Protocol):
    """A mode: whole pushes go in, sets to apply come out.

    `able` is how many workers may still have data: all places but those whose workers are out of it.
    """

    places: int
    """Workers the job admits."""
    needed: int
    """Workers that must have joined before the job starts."""
    judges_steps: bool
    """Whether a push can be late."""
    waits: str
    """What a worker does that gets no number though there are some, for people."""

    def is_late(self, push: Push, step: int) -> bool:
        """Whether the push's round is closed."""
        ...

    def add(self, push: Push) -> None:
        """Takes a push that is whole everywhere and not late."""
        ...

    def take(self, numbers: BatchNumbers, able: int) -> list[Push]:
        """Removes and returns the pushes of the next update, in order of batch numbers; none if it is not due."""
        ...

    def leave_out(self, step: int) -> list[Push]:
        """Removes and returns the whole pushes whose round closed without them."""
        ...

    def empty(self) -> list[Push]:
        """Removes and returns all whole pushes, in order of batch numbers: another mode takes over."""
        ...

    def choose(self, member: Member, members: Sequence[Member], numbers: BatchNumbers) -> int | None:
        """The number that this worker gets now, or None: it has to wait. `members` are all, in order of indices."""
        ...

    def lacks(self, numbers: BatchNumbers, able: int, members: Sequence[Member]) -> bool:
        """Whether the open round needs a number that nobody holds and no live worker can take."""
        ...

    def settle(self, numbers: BatchNumbers, least: int, members: Sequence[Member]) -> bool:
        """Lets the open round close with the numbers that are held, if they are at least `least` or all there are."""
        ...


class AsyncRounds:
    """Asynchronous: every push is a round of its own, in the order in which they became whole.

    With a staleness bound (stale synchronous parallel; Ho et al. 2013) a worker gets nothing new while its count of
    applied pushes is more than the bound ahead of the slowest that computes or wants to.
    """

    def __init__(self, settings: Settings) -> None:
        self.places = int(settings["max_workers"])
        self.needed = 1
        self.judges_steps = False
        self.waits = "ahead of the slowest"
        self._bound = int(settings["max_staleness"])
        self._next: list[Push] = []

    def is_late(self, push: Push, step: int) -> bool:
        """Never."""
        return False

    def add(self, push: Push) -> None:
        """Makes it the next round."""
        self._next.append(push)

    def take(self, numbers: BatchNumbers, able: int) -> list[Push]:
        """The oldest push, alone."""
        return [self._next.pop(0)] if self._next else []

    def leave_out(self, step: int) -> list[Push]:
        """None: nothing is ever late."""
        return []

    def empty(self) -> list[Push]:
        """Those that wait."""
        left, self._next = self._next, []
        return sorted(left, key=_batch)

    def choose(self, member: Member, members: Sequence[Member], numbers: BatchNumbers) -> int | None:
        """The next number that nobody else was promised, unless the worker is too far ahead."""
        if self._bound >= 0 and member.progress is not None:
            slowest = slowest_progress(members)
            if slowest is not None and member.progress - slowest > self._bound:
                return None
        return numbers.next(promised_to_others(member, members))

    def lacks(self, numbers: BatchNumbers, able: int, members: Sequence[Member]) -> bool:
        """Never: nobody waits for others."""
        return False

    def settle(self, numbers: BatchNumbers, least: int, members: Sequence[Member]) -> bool:
        """Always: there is nothing to settle."""
        return True


class SyncRounds:
    """Synchronous: exactly N gradients of N different workers, all computed at the current step.

    N shrinks to what the epoch still has, and to the workers that still have data. Without backup workers a round does
    not span epochs. Of more than N + K workers (which only a change of N and K leaves) the last by index are spare.

    Workers that keep back a part of what they push are not alike: which one computes a batch matters. So without backup
    workers the numbers of such a round are handed out together, in order of indices, once all of them want one.
    """

    def __init__(self, settings: Settings) -> None:
        self.needed = int(settings["workers"])
        self._backup = int(settings["backup"])
        self.places = self.needed + self._backup
        self.judges_steps = True
        self.waits = "waiting for its round"
        keeps_back = bool(settings["compress"]) or settings["push_dtype"] != "float32"
        self._in_order = keeps_back and not self._backup
        self._able = self.needed
        self._whole: list[Push] = []
        self._epoch: int | None = None
        self._settled: int | None = None

    def is_late(self, push: Push, step: int) -> bool:
        """Whether it was computed before the current step."""
        return push.base_step < step

    def add(self, push: Push) -> None:
        """Adds to the open round."""
        self._whole.append(push)

    def take(self, numbers: BatchNumbers, able: int) -> list[Push]:
        """The first pushes of the round, once they are its quorum."""
        self._able = able
        quorum = self._quorum(numbers, able)
        if not self._whole or len(self._whole) < quorum:
            return []
        first, self._whole = self._whole[: max(1, quorum)], self._whole[max(1, quorum) :]
        self._epoch = self._settled = None
        return sorted(first, key=_batch)

    def leave_out(self, step: int) -> list[Push]:
        """Those of an older step."""
        late = [push for push in self._whole if self.is_late(push, step)]
        self._whole = [push for push in self._whole if not self.is_late(push, step)]
        return late

    def empty(self) -> list[Push]:
        """Those of the open round."""
        left, self._whole = self._whole, []
        return sorted(left, key=_batch)

    def _quorum(self, numbers: BatchNumbers, able: int) -> int:
        wanted = self.needed if self._settled is None else self._settled
        return min(wanted, able, self._due(numbers))

    def _due(self, numbers: BatchNumbers) -> int:
        """Numbers that the round could use: those of its whole pushes are still leased."""
        held = self._held(numbers)
        if self._epoch is None or self._spans(numbers):
            return held + numbers.queued_count(self.needed)
        return held + numbers.queued_in(self._epoch, self.needed)

    def choose(self, member: Member, members: Sequence[Member], numbers: BatchNumbers) -> int | None:
        """A number once a round for each worker, and only one of the round's epoch."""
        if not self._takes_part(member, members) or self._gathers(members, numbers):
            return None
        number = numbers.next()
        if self._backup or number is None:
            return number
        if self._epoch is None or self._is_used_up(self._epoch, numbers):
            self._epoch = numbers.epoch_of(number)
        return number if self._spans(numbers) else numbers.next_in(self._epoch)

    def _gathers(self, members: Sequence[Member], numbers: BatchNumbers) -> bool:
        """Whether a round whose numbers go out together has not all of its workers yet."""
        if not self._in_order or self._whole or self._held(numbers):
            return False
        present = self._present(members)
        return not all(present) or sum(present) < self._quorum(numbers, self._able)

    def _present(self, members: Sequence[Member]) -> list[bool]:
        """Of each that takes part, whether it wants a number."""
        return [member.waiting for member in members if self._takes_part(member, members)]

    def _takes_part(self, member: Member, members: Sequence[Member]) -> bool:
        """Whether it is not spare, and has no push in the open round: perhaps one of its index's former life."""
        if len(members) > self.places and members.index(member) >= self.places:
            return False
        return all(push.id.worker != member.worker for push in self._whole)

    def _spans(self, numbers: BatchNumbers) -> bool:
        """Whether it takes numbers of any epoch: with backup workers, or while leases of such a time are left."""
        return bool(self._backup) or self._epoch is None or numbers.leased_in(self._epoch) < numbers.leased_count()

    def _is_used_up(self, epoch: int, numbers: BatchNumbers) -> bool:
        """Whether the round can come to nothing: all that was left of its epoch has been retired."""
        return not self._whole and not self._held(numbers) and numbers.next_in(epoch) is None

    def lacks(self, numbers: BatchNumbers, able: int, members: Sequence[Member]) -> bool:
        """Whether whole and leased numbers, and workers that have none and could, are fewer than the quorum."""
        missing = self._quorum(numbers, able) - self._held(numbers)
        return missing > 0 and missing > sum(
            member.batch is None and not member.pending and self._takes_part(member, members) for member in members
        )

    def settle(self, numbers: BatchNumbers, least: int, members: Sequence[Member]) -> bool:
        """If it has `least` workers, or all that the epoch still needs."""
        held = self._held(numbers)
        if self._in_order and not held:
            # Nothing has been handed out yet: those that want a number are the round.
            held = sum(self._present(members))
        if held < min(least, self._due(numbers)):
            return False
        self._settled = held
        return True

    def _held(self, numbers: BatchNumbers) -> int:
        if self._epoch is None or self._spans(numbers):
            return numbers.leased_count()
        return numbers.leased_in(self._epoch)


def slowest_progress(members: Sequence[Member]) -> int | None:
    """The lowest count of applied pushes among workers that compute or want to; None if there is none."""
    counts = [member.progress for member in members if member.batch is not None or member.waiting]
    return min((count for count in counts if count is not None), default=None)


def promised_to_others(member: Member, members: Sequence[Member]) -> set[int]:
    """The numbers that other workers, which compute, have been promised."""
    return {other.promised for other in members if other is not member and other.promised}


def _batch(push: Push) -> int:
    return push.batch


def rounds_for(settings: Settings) -> Rounds:
    """The one place that knows the modes by name."""
    return SyncRounds(settings) if settings["mode"] == "sync" else AsyncRounds(settings)


def weights(pushes: list[Push]) -> Weighted:
    """Each push's share of the examples, computed in float64 and rounded once to float32."""
    total = sum(push.examples for push in pushes)
    return tuple((push.id, to_float32(push.examples / total)) for push in pushes)
