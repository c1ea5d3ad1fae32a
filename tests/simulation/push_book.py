"""The simulator's own book of pushes: who sent which, where it is whole, and what became of it."""

from __future__ import annotations

from collections import Counter

from simulation.messages import Header
from simulation.numbers import Numbers
from simulation.violation import Violation

from grpc_ps.client.answers import Reply
from grpc_ps.psserver.lead.log import Answer, Dismiss, PushId

Key = tuple[int, int, int]


class PushBook:
    """Every push of honest workers, by (worker, incarnation, sequence).

    Attributes:
        dismissed: incarnations whose life is over.
    """

    def __init__(self, shards: int, numbers: Numbers, seen: Counter[str]) -> None:
        self.dismissed: set[int] = set()
        self._shards = shards
        self._numbers = numbers
        self._seen = seen
        self._sent: dict[Key, Header] = {}
        self._whole: dict[Key, int] = {}
        self._outcomes: dict[Key, tuple[str, int]] = {}
        self._kept: set[Key] = set()

    def pushed(self, header: Header) -> None:
        """A worker begins to send a push."""
        if header.key in self._sent:
            raise Violation("unknown-push", f"{header} is made twice")
        self._sent[header.key] = header

    def held(self, shard: int, header: Header) -> None:
        """A shard has all of its part."""
        if self._sent.get(header.key) is not header:
            raise Violation("unknown-push", f"shard {shard} holds {header}, which nobody sent")
        self._whole[header.key] = self._whole.get(header.key, 0) | 1 << shard

    def whole(self, push: PushId) -> Header:
        """The header of a push that is used: it must be whole on all shards, and finite."""
        key = (push.worker, push.incarnation, push.sequence)
        header = self._sent.get(key)
        if header is None:
            raise Violation("unknown-push", f"{push} is used and was never sent")
        if self._whole.get(key, 0) != (1 << self._shards) - 1:
            raise Violation("not-whole", f"{push} is used, and whole on shards {self._whole.get(key, 0):b} only")
        if header.nan_on >= 0:
            raise Violation("non-finite", f"{push} has a NaN and is used")
        return header

    def untold(self) -> set[int]:
        """Batches whose pushes are refused for good, of which nobody is told before the end is safe."""
        everywhere = (1 << self._shards) - 1
        return {
            header.push.batch
            for key, header in self._sent.items()
            if header.nan_on >= 0 and key not in self._outcomes and self._whole.get(key) == everywhere
        }

    def opened(self, push: PushId) -> None:
        """The values of that push are the state: they come of this very generation."""
        header = self.whole(push)
        self._outcomes[header.key] = ("APPLIED", 0)

    def applied(self, header: Header, step: int) -> None:
        """A push is in the model; `step` is the step after it."""
        incarnation = header.key[1]
        if header.key in self._outcomes:
            raise Violation("applied-twice", f"{header} is {self._outcomes[header.key]} and applied")
        if incarnation in self.dismissed:
            if header.key not in self._kept:
                raise Violation("fenced", f"{header} is applied after its life ended")
            self._kept.discard(header.key)
            self._seen["kept push applied"] += 1
        staleness = step - 1 - header.push.base_step
        self._outcomes[header.key] = ("APPLIED", staleness)
        self._numbers.use(header.push.batch, incarnation, "applied")
        self._seen["stale push applied"] += bool(staleness)

    def answered(self, entry: Answer, step: int) -> None:
        """An answer tells what became of a push: one thing, once, and the same each time it is told."""
        result = entry.result
        assert result is not None
        key = (entry.worker, entry.incarnation, result.sequence)
        header = self._sent.get(key)
        if header is None:
            raise Violation("outcome", f"{key} was never sent and is {result}")
        known, told = self._outcomes.get(key), (result.outcome, result.staleness)
        if result.repeated or result.outcome == "APPLIED":
            self._seen["repeated" if result.repeated else "APPLIED"] += 1
            if known != told:
                raise Violation("outcome", f"{header} is {known} and was told {told}")
            return
        if known is not None:
            raise Violation("outcome", f"{header} is {told} after {known}")
        self._seen[result.outcome] += 1
        self._outcomes[key] = told
        self._decided(entry, header, step)

    def _decided(self, entry: Answer, header: Header, step: int) -> None:
        result, push = entry.result, header.push
        assert result is not None
        if result.outcome == "LATE":
            if push.base_step >= step or result.staleness != step - push.base_step:
                raise Violation("late", f"{header} is {result} at step {step}")
            self._numbers.free(push.batch, entry.incarnation)
            if self._whole.get(header.key, 0) != (1 << self._shards) - 1:
                self._seen["late in the middle of a push"] += 1
        elif result.outcome == "NON_FINITE":
            if header.nan_on < 0:
                raise Violation("outcome", f"{header} is finite and refused")
            self._numbers.use(push.batch, entry.incarnation, "retired")
        elif result.outcome != "DONE" or entry.done is None:
            raise Violation("outcome", f"{header} is {result} before the end")

    def dismiss(self, entry: Dismiss) -> None:
        """A life is over: its number comes back, unless its push is whole and kept."""
        incarnation = entry.incarnation
        if incarnation in self.dismissed:  # its kept push came too late
            self._kept = {kept for kept in self._kept if kept[1] != incarnation}
        elif entry.keep:
            self._kept.add((entry.worker, incarnation, entry.keep))
            self._seen["push kept"] += 1
        self.dismissed.add(incarnation)
        self._seen[f"dismissed {entry.reason or 'after leaving'}"] += 1
        if not any(kept[1] == incarnation for kept in self._kept):
            for number in [it for it, holder in self._numbers.holders.items() if holder == incarnation]:
                self._numbers.free(number, incarnation)

    def told(self, key: Key, reply: Reply) -> None:
        """A worker has learnt what became of its push. The end may overtake an outcome that it has not heard."""
        known = self._outcomes.get(key)
        if known == (reply.outcome, reply.staleness) or (reply.done and reply.outcome == "DONE"):
            return
        raise Violation("outcome", f"push {key} is {known}, and its worker heard {reply}")
