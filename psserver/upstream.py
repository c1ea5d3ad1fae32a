"""Where a shard reports to: on shard 0 to the decisions, elsewhere over the link to it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.client.shared.logs import event
from grpc_ps.protos.coordination_pb2 import Reduced, Saved, Unable, Whole
from grpc_ps.psserver.lead.clipping import Squares
from grpc_ps.psserver.lead.coordinator import Coordinator
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.messages import push_of, saved_part

logger = logging.getLogger(__name__)


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


class ShardReports:
    """What one shard reports, as the lead takes it: shard 0's own in that very call, another's as its link brings it.

    So with one shard a push is decided by the call that says that it is whole. Not guarded: used by the lead's event
    loop alone.

    Args:
        shard: which one reports.
    """

    def __init__(self, lead: Coordinator, shard: int) -> None:
        self._lead = lead
        self._shard = shard

    def whole(self, report: Whole) -> None:
        """It holds its part of a push.

        Raises:
            InvalidPush: the report is not what this job asks for.
        """
        job, squares = self._lead.job, self._squares(report.squares)
        self._lead.act(lambda now: job.whole(self._shard, push_of(report.header), report.non_finite, now, squares))

    def reduced(self, report: Reduced) -> None:
        """It has made a mean.

        Raises:
            InvalidPush: the report is not what this job asks for.
        """
        squares = self._squares(report.squares)
        self._lead.act(lambda now: self._lead.job.reduced(self._shard, report.position, squares, now))

    def _squares(self, sums: Sequence[float]) -> Squares:
        """Those of a report; there are none where the job clips by no norm."""
        description = self._lead.description
        if not sums:
            return ()
        if description is None:
            raise InvalidPush(f"shard {self._shard} reports sums of squares, and there is no job")
        return description.squares(self._shard, sums)

    def overflow(self, parameter: str, step: int) -> None:
        """An update went wrong on it."""
        self._lead.act(lambda now: self._lead.job.overflow(parameter, step, now))

    def unpinned(self, snapshot: int) -> None:
        """It has let go of a snapshot: a reader has had it."""
        self._lead.job.pins.drop(self._shard, snapshot)

    def saved(self, report: Saved) -> None:
        """It has written its part of a checkpoint, or could not."""
        if report.non_finite:
            self._lead.act(lambda now: self._lead.job.stop(Done(5, report.error), now))
        elif report.error:
            event(logger, "checkpoint_failed", logging.WARNING, shard=self._shard, why=report.error)
        self._lead.act(lambda now: self._lead.job.durability.saved(self._shard, saved_part(report), now))

    def unable(self, report: Unable) -> None:
        """It cannot carry out the job, whose settings do not allow what it comes to."""
        self._lead.act(lambda now: self._lead.job.stop(Done(report.exit_code, report.reason), now))

    def leaving(self) -> None:
        """It was told to end."""
        event(logger, "shard_leaving", shard=self._shard)
        self._lead.act(lambda now: self._lead.job.attendance.leaving(self._shard, now))
