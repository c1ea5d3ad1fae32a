"""Batch numbers: which piece of the data is used next, and by whom."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Sequence


class BatchNumbers:
    """Hands out batch numbers as leases, the lowest first.

    A number is queued, leased, or used up (applied or retired); a returned one is handed out again before any
    new one. With `per_epoch` zero the data is endless: there is one epoch without end.

    Args:
        per_epoch: batches in one epoch; zero means endless data.
        epochs: times the data is used; zero means without limit.
        cursor: the first number that nobody has had.
        returned: lower numbers that are queued again.
    """

    def __init__(self, per_epoch: int, epochs: int, cursor: int = 0, returned: Sequence[int] = ()) -> None:
        if epochs and not per_epoch:
            raise ValueError("endless data has no epochs")
        self.per_epoch = per_epoch
        self._end = per_epoch * epochs or None
        self._cursor = cursor
        self._returned: list[int] = sorted(returned)
        self._leases: dict[int, int] = {}

    def epoch_of(self, number: int) -> int:
        """The epoch that a number belongs to, from zero."""
        return number // self.per_epoch if self.per_epoch else 0

    def next(self, promised: Collection[int] = ()) -> int | None:
        """The number that would be leased next, or None if all are used or leased.

        Those that are promised to others are left to them, unless there are no more.
        """
        lowest = self._returned[0] if self._returned else self._cursor
        fresh = self._cursor
        while fresh in promised:
            fresh += 1
        free = next((number for number in self._returned if number not in promised), fresh)
        found = lowest if self._end is not None and free >= self._end else free
        return None if self._end is not None and found >= self._end else found

    def next_in(self, epoch: int) -> int | None:
        """The lowest number of that epoch that nobody has, or None. New numbers come in order: none is left out."""
        first = epoch * self.per_epoch
        place = bisect_left(self._returned, first)
        if place < len(self._returned) and self.epoch_of(self._returned[place]) == epoch:
            return self._returned[place]
        fresh = self._end is None or self._cursor < self._end
        return self._cursor if fresh and self.epoch_of(self._cursor) == epoch else None

    def lease(self, number: int, holder: int) -> None:
        """Leases a number to `holder`: one that `next` or `next_in` has just named."""
        if number >= self._cursor:
            # What is skipped has been promised to others.
            self._returned += range(self._cursor, number)
            self._cursor = number + 1
        else:
            del self._returned[self._returned.index(number)]
        self._leases[number] = holder

    def give_back(self, number: int) -> None:
        """Queues a leased number again: its batch was not used."""
        del self._leases[number]
        insort(self._returned, number)

    def use_up(self, number: int) -> None:
        """Retires a leased number: its batch is in the model, or was refused for good."""
        del self._leases[number]

    def leased_in(self, epoch: int) -> int:
        """Numbers of an epoch that are leased."""
        if not self.per_epoch:
            return len(self._leases)
        return sum(number // self.per_epoch == epoch for number in self._leases)

    def leased_count(self) -> int:
        """Numbers that are leased."""
        return len(self._leases)

    def queued_in(self, epoch: int, enough: int) -> int:
        """Numbers of an epoch that nobody has, counted up to `enough`."""
        returned = sum(self.epoch_of(number) == epoch for number in self._returned)
        if not self.per_epoch:
            return enough
        end = (epoch + 1) * self.per_epoch
        fresh = (end if self._end is None else min(end, self._end)) - max(self._cursor, epoch * self.per_epoch)
        return min(enough, returned + max(0, fresh))

    def queued_count(self, enough: int) -> int:
        """Numbers that nobody has, counted up to `enough`."""
        if self._end is None:
            return enough
        return min(enough, len(self._returned) + self._end - self._cursor)

    def state(self) -> tuple[int, tuple[int, ...]]:
        """The cursor and the returned numbers as they would be if every lease ended now."""
        return self._cursor, tuple(sorted([*self._returned, *self._leases]))

    def exhausted(self) -> bool:
        """Whether nothing is queued or leased: the last epoch is over."""
        return self.next() is None and not self._leases
