"""Where a shard reports to: on shard 0 the coordinator, elsewhere the link to it."""

from __future__ import annotations

from typing import Protocol

from grpc_ps.protos.coordination_pb2 import Reduced, Saved, Whole
from grpc_ps.psserver.lead.coordinator import Coordinator


class Upstream(Protocol):
    """Takes a shard's reports. Never blocks."""

    def whole(self, report: Whole) -> None:
        """This shard holds its part of a push."""
        ...

    def reduced(self, report: Reduced) -> None:
        """This shard has made the mean of a round."""
        ...

    def overflow(self, parameter: str, step: int) -> None:
        """The update to `step` is not finite in `parameter`."""
        ...

    def unpinned(self, snapshot: int) -> None:
        """This shard has let go of a snapshot, for a reader has had it."""
        ...

    def saved(self, report: Saved) -> None:
        """This shard has written its part of a checkpoint, or could not."""
        ...


class Local:
    """Shard 0's own reports: with one shard a push is decided in this very call."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def whole(self, report: Whole) -> None:
        """Tells the coordinator."""
        self._coordinator.whole(0, report)

    def reduced(self, report: Reduced) -> None:
        """Tells the coordinator."""
        self._coordinator.reduced(0, report)

    def overflow(self, parameter: str, step: int) -> None:
        """Tells the coordinator."""
        self._coordinator.overflow(parameter, step)

    def unpinned(self, snapshot: int) -> None:
        """Tells the coordinator."""
        self._coordinator.unpin(0, snapshot)

    def saved(self, report: Saved) -> None:
        """Tells the coordinator."""
        self._coordinator.saved(0, report)
