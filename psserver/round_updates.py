"""Rounds on this shard: the mean of their pushes, the update with it, and the values after that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from grpc_ps.client.shared.stopwatch import Stopwatch
from grpc_ps.protos.coordination_pb2 import Reduced
from grpc_ps.psserver.backlog import Backlog
from grpc_ps.psserver.lead.log import Apply, Weighted
from grpc_ps.psserver.part import Image
from grpc_ps.psserver.residuals import Residuals
from grpc_ps.psserver.snapshot import Snapshot
from grpc_ps.psserver.staging import Staging, key_of_id
from grpc_ps.psserver.updates import Updates

T = TypeVar("T")
INLINE_BYTES = 1 << 20
"""Updates up to this size run on the event loop: they take less time than handing them to a thread."""


class RoundUpdates:
    """Carries out what the log says of rounds, in one generation.

    Not guarded: used by the event loop alone. Large updates run in the backlog's thread; entries behind them wait.

    Attributes:
        reduced: the mean that is made and not applied yet.
        snapshot: the values at this position; None before the job is open, and while or after they are not finite.
        non_finite: the parameter that an update made infinite or NaN; empty while all is well.

    Args:
        staging: has the pushes of a round, which are forgotten once they are applied.
        residuals: told of the pushes that are applied.
        times: where the shard's time goes.
        at: called at the points where `--fault` may kill the process.
        on_reduced: told of each mean that `reduce` asked for.
        on_overflow: told the parameter and step of an update whose result is not finite. Both are called after the
            entry.
    """

    def __init__(
        self,
        updates: Updates,
        staging: Staging,
        residuals: Residuals,
        backlog: Backlog,
        times: Stopwatch,
        *,
        at: Callable[[str], None],
        on_reduced: Callable[[Reduced], None],
        on_overflow: Callable[[str, int], None],
    ) -> None:
        self.reduced: Reduced | None = None
        self.snapshot: Snapshot | None = None
        self.non_finite = ""
        self._updates = updates
        self._staging = staging
        self._residuals = residuals
        self._backlog = backlog
        self._times = times
        self._at = at
        self._on_reduced = on_reduced
        self._on_overflow = on_overflow
        self._mean: Weighted = ()

    def reduce(self, pushes: Weighted) -> None:
        """Makes the mean of a round, and reports its squares.

        Raises:
            LookupError: a push is not here.
        """
        images = [self._staging.image(push) for push, _ in pushes]
        position, self._mean = self._backlog.position, pushes

        def reduced(sums: list[float]) -> None:
            self.reduced = Reduced(position=position, squares=sums)
            self._backlog.later(self._on_reduced, self.reduced)

        self._run(images, lambda: self._updates.reduce(images, pushes), reduced)

    def apply(self, entry: Apply) -> None:
        """Applies the mean of a round, which is made now if it has not been reduced.

        Raises:
            LookupError: a push is not here, or the mean that was made is of others.
        """
        images = [self._staging.image(push) for push, _ in entry.pushes]
        averaged = self._mean == entry.pushes
        if self._mean and not averaged:
            raise LookupError(f"the update to step {entry.step} is of other pushes than the mean that was made for it")
        self._mean, self.reduced = (), None
        # A buffer that nobody else holds is updated in place instead of copied.
        self.snapshot = None
        self._run(
            images,
            lambda: self._updates.apply(images, entry, averaged),
            lambda result: self._applied(entry, *result),
        )

    def _applied(self, entry: Apply, snapshot: Snapshot, non_finite: str) -> None:
        self._at("applied")
        self._times.count("updates")
        for push, _ in entry.pushes:
            key = key_of_id(push)
            self._staging.forget(key)
            self._residuals.decided(*key, applied=True)
        self.non_finite = non_finite
        if non_finite:
            self._backlog.later(self._on_overflow, non_finite, entry.step)
        else:
            self.snapshot = snapshot

    def _run(self, images: Sequence[Image], work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Runs work on those images, here or in the thread."""
        nbytes = sum(image.nbytes for image in images)
        timed = partial(self._times.timed, "apply", work)
        if nbytes <= INLINE_BYTES:
            then(timed())
        else:
            self._backlog.in_kernels(timed, then)
