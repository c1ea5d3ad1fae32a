"""The simulator's own books of batch numbers, kept from the log alone."""

from __future__ import annotations

from simulation.violation import Violation

from grpc_ps.psserver.lead.settings import Settings


class Numbers:
    """Who holds which number, and what became of each.

    Attributes:
        used: number -> "applied" or "retired"; `lossy` is whether any was retired.
        holders: number -> the incarnation that leases it.
        freed: numbers that came back and are not handed out again yet.
        cursor: the first number that nobody has had.
        end: how many numbers there are; None for endless data.
    """

    def __init__(self, settings: Settings) -> None:
        self._examples = int(settings.get("examples", 0))
        self._batch_size = int(settings.get("batch_size", 1))
        self.per_epoch = -(-self._examples // self._batch_size)
        self.end = self.per_epoch * int(settings["epochs"]) or None
        self.used: dict[int, str] = {}
        self.lossy = False
        self.holders: dict[int, int] = {}
        self.freed: set[int] = set()
        self.cursor = 0
        self._used_in: dict[int, int] = {}

    def at_rest(self) -> Numbers:
        """The same books with every lease given back: what a checkpoint keeps of them."""
        copy = Numbers.__new__(Numbers)
        copy.__dict__.update(self.__dict__)
        copy.used, copy._used_in = dict(self.used), dict(self._used_in)
        copy.holders, copy.freed = {}, self.freed | self.holders.keys()
        return copy

    def retire(self, numbers: set[int]) -> None:
        """Batches of which nobody was told were refused for good before."""
        for number in numbers:
            self.freed.remove(number)
            self.holders[number] = 0
            self.use(number, 0, "retired")

    def undisturbed(self, wanted: int) -> list[int]:
        """The next batches of up to `wanted` workers, if all before were used in their order, and each epoch alone."""
        first = len(self.used)
        if self.per_epoch:
            wanted = min(wanted, self.per_epoch - first % self.per_epoch)
        return list(range(first, first + wanted))

    def epoch(self, number: int) -> int:
        """The epoch that a number belongs to."""
        return number // self.per_epoch if self.per_epoch else 0

    def examples(self, number: int) -> int:
        """How many examples are in that batch: the last of an epoch may have fewer."""
        if not self.per_epoch:
            return self._batch_size
        return min(self._batch_size, self._examples - number % self.per_epoch * self._batch_size)

    def lease(self, number: int, holder: int, *, within_epoch: bool) -> None:
        """A number is handed out, the lowest there is."""
        if number in self.used:
            raise Violation("number-twice", f"{number} is {self.used.get(number)} and handed out again")
        other = self.holders.get(number)
        if other == holder:
            return
        if other is not None:
            raise Violation("number-twice", f"{number} is handed to life {holder} while life {other} holds it")
        freed = self.freed
        if freed and within_epoch:
            freed = {it for it in freed if self.epoch(it) == self.epoch(number)}
        if freed and number > min(freed):
            raise Violation("number-order", f"{number} is handed out before {freed}")
        if number in self.freed:
            self.freed.remove(number)
        else:
            if number != self.cursor:
                raise Violation("number-lost", f"{number} is handed out, the next new one is {self.cursor}")
            if self.end is not None and number >= self.end:
                raise Violation("number-twice", f"{number} is beyond the last epoch")
            self.cursor += 1
        self.holders[number] = holder

    def use(self, number: int, holder: int, how: str) -> None:
        """A number's batch is in the model, or refused for good."""
        if number in self.used:
            raise Violation("number-twice", f"{number} is {how}, and {self.used.get(number)} already")
        if self.holders.pop(number, None) != holder:
            raise Violation("number-twice", f"{number} is {how} by life {holder}: not its")
        self.used[number] = how
        self.lossy = self.lossy or how == "retired"
        epoch = self.epoch(number)
        self._used_in[epoch] = self._used_in.get(epoch, 0) + 1

    def free(self, number: int, holder: int) -> None:
        """A number comes back."""
        if self.holders.get(number) == holder:
            del self.holders[number]
            self.freed.add(number)

    def left(self, epoch: int | None) -> int:
        """Numbers that are not used, of one epoch or of all."""
        if not self.per_epoch or (self.end is None and epoch is None):
            return 1 << 30
        if epoch is not None:
            return self.per_epoch - self._used_in.get(epoch, 0)
        assert self.end is not None
        return self.end - len(self.used)

    def none_left(self) -> bool:
        """Whether nobody can get a number now."""
        return not self.freed and self.end is not None and self.cursor >= self.end

    def demand_all_used(self) -> None:
        """The last epoch is over: nothing is lost."""
        assert self.end is not None
        lost = [number for number in range(self.end) if number not in self.used]
        if lost:
            raise Violation("number-lost", f"the epochs are over and {lost[:5]} were never used")
