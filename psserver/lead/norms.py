"""The norms that updates are clipped by: of some rounds they are known only once the mean has been made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from grpc_ps.psserver.lead.clipping import Clipping, Squares
from grpc_ps.psserver.lead.log import Log, PushId, Reduce
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.rounds import weights


@dataclass(slots=True)
class _Mean:
    """A round that is closed, whose mean the shards make as the entry at `position` says; `reports` by shard."""

    pushes: list[Push]
    position: int
    reports: dict[int, Squares] = field(default_factory=dict)


class Norms:
    """Finds the factors that limit the update of a round.

    A push is reported with the squares of its elements, which is all that a round of one needs. Of several pushes the
    norm is that of their mean: every shard makes it first and reports, and no round is closed meanwhile.
    Not guarded: used by the lead's event loop alone.

    Args:
        clipping: what the job limits.
        shard_count: reports of one mean.
    """

    def __init__(self, clipping: Clipping, shard_count: int, log: Log) -> None:
        self._clipping = clipping
        self._shard_count = shard_count
        self._log = log
        self._squares: dict[PushId, Squares] = {}
        self._mean: _Mean | None = None

    @property
    def awaits_mean(self) -> bool:
        """Whether a round is closed and its mean not made everywhere."""
        return self._mean is not None

    def note(self, push: PushId, squares: Squares) -> None:
        """Keeps what was reported of a push that goes into a round, if it is of use."""
        if self._clipping.by_norm:
            self._squares[push] = squares

    def forget(self, push: PushId) -> None:
        """That push is applied, or never will be."""
        self._squares.pop(push, None)

    def scales(self, pushes: list[Push]) -> tuple[float, ...] | None:
        """The factors of a round with these pushes; None if its mean has to be made first, which the log then says."""
        if not self._clipping.by_norm:
            return ()
        if len(pushes) == 1:
            return self._clipping.scales(self._squares[pushes[0].id])
        self._log.append(Reduce(weights(pushes)))
        self._mean = _Mean(pushes, self._log.position)
        return None

    def reduced(self, shard: int, position: int, squares: Squares) -> tuple[list[Push], tuple[float, ...]] | None:
        """A shard has made the mean that the entry at `position` asked for; once all have, the round and its factors.

        A report may come twice, or of a mean that nobody waits for: after a broken link shards repeat theirs.
        """
        mean = self._mean
        if mean is None or mean.position != position:
            return None
        mean.reports[shard] = squares
        if len(mean.reports) < self._shard_count:
            return None
        self._mean = None
        return mean.pushes, self._clipping.scales(sum(mean.reports.values(), ()))

    def take_over(self, before: Norms) -> Sequence[Push]:
        """Goes on with what another one has noted; returns the pushes of the round whose mean is being made."""
        self._mean, self._squares = before._mean, before._squares
        return self._mean.pushes if self._mean is not None else ()
