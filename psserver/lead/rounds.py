"""When a push is applied and with which others: one class a mode."""

from __future__ import annotations

import struct
from typing import Protocol

from grpc_ps.psserver.lead.batches import BatchNumbers
from grpc_ps.psserver.lead.log import PushId
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.settings import Settings

Weighted = tuple[tuple[PushId, float], ...]


class Rounds(Protocol):
    """A mode: whole pushes go in, sets to apply come out."""

    places: int
    """Workers the job admits."""
    needed: int
    """Workers that must have joined before the job starts."""

    def is_late(self, push: Push, step: int) -> bool:
        """Whether the push's round is closed."""
        ...

    def add(self, push: Push) -> None:
        """Takes a push that is whole everywhere and not late."""
        ...

    def take(self, numbers: BatchNumbers) -> list[Push]:
        """Removes and returns the pushes of the next update, in order of batch numbers; none if it is not due."""
        ...

    def may_release(self, worker: int, numbers: BatchNumbers) -> bool:
        """Whether that worker gets the next number now."""
        ...

    def lacks(self, numbers: BatchNumbers) -> bool:
        """Whether the open round needs a number that nobody holds."""
        ...

    def settle(self, numbers: BatchNumbers, least: int) -> bool:
        """Lets the open round close with the numbers that are held, if they are at least `least` or all there are."""
        ...


class AsyncRounds:
    """Asynchronous: every push is a round of its own, in the order in which they became whole."""

    def __init__(self, settings: Settings) -> None:
        self.places = int(settings["max_workers"])
        self.needed = 1
        self._next: list[Push] = []

    def is_late(self, push: Push, step: int) -> bool:
        """Never."""
        return False

    def add(self, push: Push) -> None:
        """Makes it the next round."""
        self._next.append(push)

    def take(self, numbers: BatchNumbers) -> list[Push]:
        """The oldest push, alone."""
        return [self._next.pop(0)] if self._next else []

    def may_release(self, worker: int, numbers: BatchNumbers) -> bool:
        """Whenever there is a number."""
        return numbers.next() is not None

    def lacks(self, numbers: BatchNumbers) -> bool:
        """Never: nobody waits for others."""
        return False

    def settle(self, numbers: BatchNumbers, least: int) -> bool:
        """Always: there is nothing to settle."""
        return True


class SyncRounds:
    """Synchronous: exactly N gradients of N different workers, all computed at the current step.

    N shrinks to what the epoch still has. Without backup workers a round does not span epochs.
    """

    def __init__(self, settings: Settings) -> None:
        self.needed = int(settings["workers"])
        self._backup = int(settings["backup"])
        self.places = self.needed + self._backup
        self._whole: list[Push] = []
        self._epoch: int | None = None
        self._settled: int | None = None

    def is_late(self, push: Push, step: int) -> bool:
        """Whether it was computed before the current step."""
        return push.base_step < step

    def add(self, push: Push) -> None:
        """Adds to the open round."""
        self._whole.append(push)

    def take(self, numbers: BatchNumbers) -> list[Push]:
        """The round, once it has its quorum."""
        if not self._whole or len(self._whole) < self._quorum(numbers):
            return []
        whole, self._whole = self._whole, []
        self._epoch = self._settled = None
        return sorted(whole, key=lambda push: push.batch)

    def _quorum(self, numbers: BatchNumbers) -> int:
        return min(self.needed if self._settled is None else self._settled, self._due(numbers))

    def _due(self, numbers: BatchNumbers) -> int:
        """Numbers that the round could use: those of its whole pushes are still leased."""
        if self._backup or self._epoch is None:
            return self._held(numbers) + numbers.queued_count(self.needed)
        return self._held(numbers) + numbers.queued_in(self._epoch, self.needed)

    def may_release(self, worker: int, numbers: BatchNumbers) -> bool:
        """Once a round for each worker, and only numbers of the round's epoch."""
        number = numbers.next()
        if number is None or any(push.id.worker == worker for push in self._whole):
            return False
        epoch = numbers.epoch_of(number)
        if self._epoch is None:
            self._epoch = epoch
        return bool(self._backup) or epoch == self._epoch

    def lacks(self, numbers: BatchNumbers) -> bool:
        """Whether whole and leased numbers are fewer than the quorum."""
        if self._epoch is None:
            return False
        return self._held(numbers) < self._quorum(numbers)

    def settle(self, numbers: BatchNumbers, least: int) -> bool:
        """If it has `least` workers, or all that the epoch still needs."""
        held = self._held(numbers)
        if held < min(least, self._due(numbers)):
            return False
        self._settled = held
        return True

    def _held(self, numbers: BatchNumbers) -> int:
        if self._backup or self._epoch is None:
            return numbers.leased_count()
        return numbers.leased_in(self._epoch)


def rounds_for(settings: Settings) -> Rounds:
    """The one place that knows the modes by name."""
    return SyncRounds(settings) if settings["mode"] == "sync" else AsyncRounds(settings)


def weights(pushes: list[Push]) -> Weighted:
    """Each push's share of the examples, computed in float64 and rounded once to float32."""
    total = sum(push.examples for push in pushes)
    return tuple((push.id, _float32(push.examples / total)) for push in pushes)


def _float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
