"""The shards of the job: who is connected, and how far each has followed the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from grpc_ps.psserver.lead.refusal import Refusal


@dataclass(slots=True, kw_only=True)
class Shard:
    """One shard process, as the lead sees it. `lost_at` is when its link broke, None while that is up."""

    shard: int
    boot: int
    address: str
    position: int = 0
    lost_at: float | None = None


class Shards:
    """The followers, by shard number. Shard 0 is the lead itself and always here."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._followers: dict[int, Shard] = {}

    def __iter__(self) -> Iterator[Shard]:
        """The followers in order."""
        return iter([self._followers[shard] for shard in sorted(self._followers)])

    def missing(self) -> list[int]:
        """Shards whose link is not up."""
        here = {shard.shard for shard in self if shard.lost_at is None}
        return [shard for shard in range(1, self.count) if shard not in here]

    def connect(self, shard: int, count: int, boot: int, address: str, *, opened: bool) -> Shard:
        """Takes a shard's link.

        Raises:
            Refusal: MISMATCH for a wrong number or count, FENCED for a second process while the first one's link is up,
                LOST_STATE for a shard that comes back empty to an open job.
        """
        if count != self.count:
            raise Refusal("MISMATCH", f"shard {shard} counts {count} shards, the lead {self.count}")
        if not 0 < shard < self.count:
            raise Refusal("MISMATCH", f"shard {shard}: followers are 1 to {self.count - 1}")
        known = self._followers.get(shard)
        if known is not None and known.boot != boot:
            if known.lost_at is None:
                raise Refusal("FENCED", f"shard {shard} is served by {known.address}, whose link to the lead is up")
            if opened:
                raise Refusal("LOST_STATE", f"shard {shard} lost its state and no checkpoint is configured")
        position = known.position if known and known.boot == boot else 0
        self._followers[shard] = Shard(shard=shard, boot=boot, address=address, position=position)
        return self._followers[shard]

    def disconnect(self, shard: int, boot: int, now: float) -> None:
        """Notes that a link broke."""
        known = self._followers.get(shard)
        if known is not None and known.boot == boot:
            known.lost_at = now

    def acknowledge(self, shard: int, position: int) -> int:
        """Notes how far a shard has come; returns how far all have."""
        self._followers[shard].position = position
        return min(follower.position for follower in self)

    def gone(self, now: float, timeout: float) -> Shard | None:
        """A shard whose link has been down for longer than `timeout` seconds."""
        lost = (shard for shard in self if shard.lost_at is not None and now - shard.lost_at > timeout)
        return next(lost, None)
