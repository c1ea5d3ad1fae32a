"""What rounds and releases may be, by the rules of the design, kept from the log alone."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.numbers import Numbers
from simulation.update_reference import float32
from simulation.violation import Violation

from grpc_ps.psserver.lead.log import Weighted
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.settings import Value


@dataclass(slots=True)
class Life:
    """A live member. `count` is its applied pushes as the staleness bound counts them, None before its first number."""

    worker: int
    count: int | None = None
    out: bool = False


class RoundsReference:
    """Members, the rules that hold now, and for how long a round has lacked somebody.

    Attributes:
        members: live members by incarnation.
        were_out: all members had used up their own data, and nobody got work since.
        could_start: as many as a round needs have been there at once; has_started: somebody got work since.

    Numbers that were handed out by older rules may meet in one round although they are of two epochs, and so may those
    that are handed out while such a one is still held.
    """

    def __init__(self, settings: dict[str, Value], numbers: Numbers, rejoin: float) -> None:
        self.members: dict[int, Life] = {}
        self.paused = self.could_start = self.has_started = self.were_out = False
        self._numbers = numbers
        self._rejoin = rejoin
        self._lacking_since: float | None = None
        self._patient = False
        self._older: set[int] = set()
        self.adopt(settings, reset=False)

    def adopt(self, settings: dict[str, Value], *, reset: bool) -> None:
        """Takes the rules that hold from now on; the bound counts anew."""
        self.sync = settings["mode"] == "sync"
        self.workers = int(settings["workers"])
        self.backup = int(settings["backup"])
        self.least = int(settings["min_workers"]) or self.workers
        self.bound = int(settings["max_staleness"])
        self.places = self.workers + self.backup if self.sync else int(settings["max_workers"])
        self.within_epoch = self.sync and not self.backup and bool(self._numbers.per_epoch)
        self._older = set(self._numbers.holders)
        self._count()
        if reset:
            for life in self.members.values():
                life.count = None if life.count is None else 0

    def admit(self, worker: int, incarnation: int) -> None:
        """A worker becomes a member."""
        taken = [life.worker for life in self.members.values()]
        if worker in taken:
            raise Violation("places", f"index {worker} has two holders")
        if incarnation in self.members:
            raise Violation("places", f"incarnation {incarnation} lives twice")
        if worker >= self.places:
            raise Violation("places", f"index {worker} of {self.places} places")
        self.members[incarnation] = Life(worker)
        self._count()

    def _count(self) -> None:
        self.could_start = self.could_start or len(self.members) >= (self.workers if self.sync else 1)

    def dismiss(self, incarnation: int) -> None:
        """A member is gone."""
        if self.members.pop(incarnation, None) is not None and self.members:
            self.were_out = self.were_out or all(other.out for other in self.members.values())

    def exhaust(self, incarnation: int) -> bool:
        """A member is out of data; returns whether it was not before."""
        life = self.members.get(incarnation)
        if life is None or life.out:
            return False
        life.out = True
        self.were_out = self.were_out or all(other.out for other in self.members.values())
        return True

    def all_have_places(self) -> bool:
        """Whether a change of N and K has left nobody over, and enough are there."""
        return self.workers * self.sync <= len(self.members) <= self.places

    def applied(self, incarnation: int) -> None:
        """A push of that life is in the model."""
        life = self.members.get(incarnation)
        if life is not None:
            life.count = (life.count or 0) + 1

    def demand_round(self, pushes: list[Push], weighted: Weighted, step: int, now: float) -> None:
        """An update has the right pushes: how many, whose, of which step, in which order, with which weights."""
        batches = [push.batch for push in pushes]
        if batches != sorted(batches):
            raise Violation("order-of-batches", f"{batches}")
        total = sum(push.examples for push in pushes)
        rates = [float32(push.examples / total) for push in pushes]
        if [weight for _, weight in weighted] != rates:
            raise Violation("weights", f"{weighted} should be {rates}")
        if not self.sync:
            if len(pushes) != 1:
                raise Violation("quorum", f"async applies {len(pushes)} at once")
            return
        workers = {push.id.worker for push in pushes}
        if len(workers) != len(pushes):
            raise Violation("distinct-workers", f"{pushes}")
        late = [push for push in pushes if push.base_step != step]
        if late:
            raise Violation("late-gradient", f"{late} are applied at step {step}")
        if self.within_epoch:
            epochs = {self._numbers.epoch(batch) for batch in batches}
            if len(epochs) > 1 and not self._older & set(batches):
                raise Violation("epochs", f"a round has batches {batches}")
        self._patient = self._patient or self.lacking_for(now) >= self._rejoin
        epochs = [self._numbers.epoch(batch) if self.within_epoch else None for batch in batches]
        self._demand_quorum(len(pushes), min(map(self._numbers.left, epochs)), now)
        self._patient = False

    def _demand_quorum(self, count: int, left: int, now: float) -> None:
        if count > self.workers:
            raise Violation("quorum", f"{count} gradients, N is {self.workers}")
        if count >= min(self.workers, left, self._able()):
            return
        if not self._patient or count < min(self.least, left):
            raise Violation("quorum", f"{count} gradients, N is {self.workers}")
        self._lacking_since = now  # the next round waits as long

    def leased(self, number: int) -> None:
        """A number is handed out: with older ones, if there are any."""
        if self._older and self._older & self._numbers.holders.keys():
            self._older.add(number)

    def demand_release(self, worker: int, incarnation: int, *, again: bool) -> None:
        """A member may get a number now."""
        life = self.members.get(incarnation)
        if life is None or life.worker != worker:
            raise Violation("fenced", f"worker {worker}, life {incarnation}, is no member and gets work")
        if life.out:
            raise Violation("release", f"worker {worker} is out of data and gets a number")
        if not self.could_start:
            raise Violation("not-started", f"worker {worker} gets work, and {len(self.members)} workers have joined")
        self.has_started, self.were_out = True, False
        counts = [other.count for other in self.members.values() if other.count is not None and not other.out]
        if life.count is None:
            life.count = min(counts, default=0)
        elif not self.sync and self.bound >= 0 and not again:
            ahead = life.count - min(counts)
            if ahead > self.bound:
                raise Violation("staleness-bound", f"worker {worker} is {ahead} ahead, {self.bound} is allowed")
        if self.paused and not again:
            raise Violation("paused", f"worker {worker} gets work in a pause")

    def look(self, now: float) -> None:
        """After each decision: does the round lack somebody, and for how long?"""
        if not self.sync or self.paused:
            self._lacking_since = None
            return
        if self._lacking_since is not None and now - self._lacking_since >= self._rejoin:
            self._patient = True
        held, left = self._held()
        if held >= min(self.workers, left, self._able()):
            self._lacking_since = None
        elif self._lacking_since is None:
            self._lacking_since = now

    def _able(self) -> int:
        """Workers that may still have data: absent ones that rounds need are among them."""
        return max(self.workers, len(self.members)) - sum(life.out for life in self.members.values())

    def _held(self) -> tuple[int, int]:
        """Numbers that the round has, and how many there are for it."""
        holders = self._numbers.holders
        if not self.within_epoch or not holders:
            return len(holders), self._numbers.left(None)
        epochs = [self._numbers.epoch(number) for number in holders]
        epoch = max(set(epochs), key=epochs.count)
        return epochs.count(epoch), self._numbers.left(epoch)

    def lacking_for(self, now: float) -> float:
        """Seconds for which the round has lacked somebody."""
        return 0.0 if self._lacking_since is None else now - self._lacking_since
