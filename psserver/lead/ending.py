"""The end of a job that has to be saved first."""

from __future__ import annotations

from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.saving import RETRY_SECONDS


class Ending:
    """How the job is going to end, and how the last checkpoint fares. Not guarded: used by the lead's event loop alone.

    Attributes:
        done: how it is going to end, None while it goes on.
        hurried: whether somebody told it to end, and waits for that.
    """

    def __init__(self, limits: Limits) -> None:
        self.done: Done | None = None
        self.hurried = False
        self._patience = limits.retry
        self._failing_since: float | None = None
        self._failed_at = 0.0

    def failed(self, now: float) -> None:
        """An attempt to write the last checkpoint has failed."""
        self._failed_at = now
        if self._failing_since is None:
            self._failing_since = now

    def has_failed(self, now: float) -> bool:
        """Whether that has gone on for too long."""
        return self._failing_since is not None and now - self._failing_since >= self._patience

    def may_try(self, now: float) -> bool:
        """Whether it is time for another attempt."""
        return self._failing_since is None or now - self._failed_at >= RETRY_SECONDS
