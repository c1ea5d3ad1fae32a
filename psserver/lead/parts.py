"""Pushes on their way: which shards hold their part whole."""

from __future__ import annotations

from dataclasses import dataclass, field

from grpc_ps.psserver.lead.clipping import Squares
from grpc_ps.psserver.lead.log import PushId
from grpc_ps.psserver.lead.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Push:
    """The header of a push, equal on all shards. `values` marks initial values instead of gradients."""

    id: PushId
    base_step: int
    batch: int
    examples: int
    values: bool = False


@dataclass(slots=True)
class _Progress:
    push: Push
    shards: set[int] = field(default_factory=set)
    non_finite: str = ""
    squares: list[tuple[int, float]] = field(default_factory=list)


class Parts:
    """Collects the shards' reports until a push is whole everywhere. Holds at most one push per incarnation."""

    def __init__(self, shard_count: int) -> None:
        self._shard_count = shard_count
        self._pushes: dict[int, _Progress] = {}

    def report(self, shard: int, push: Push, non_finite: str, squares: Squares) -> tuple[Push, str, Squares] | None:
        """Notes that `shard` holds its part; once all do, returns the push, its non-finite parameter ("") and squares.

        Raises:
            Refusal: INVALID_PUSH where the shards were told different things about one push.
        """
        progress = self._pushes.get(push.id.incarnation)
        if progress is None or progress.push.id.sequence < push.id.sequence:
            progress = self._pushes[push.id.incarnation] = _Progress(push)
        if progress.push != push:
            raise Refusal("INVALID_PUSH", f"push {push.id.sequence} of worker {push.id.worker} differs between shards")
        if shard not in progress.shards:
            progress.squares += squares
        progress.shards.add(shard)
        # The first by name, whichever shard reports first.
        progress.non_finite = min(filter(None, (progress.non_finite, non_finite)), default="")
        if len(progress.shards) < self._shard_count:
            return None
        del self._pushes[push.id.incarnation]
        return push, progress.non_finite, tuple(progress.squares)

    def drop(self, incarnation: int) -> None:
        """Forgets a push that will never be whole."""
        self._pushes.pop(incarnation, None)
