"""What is said of a job that somebody ended."""

from __future__ import annotations

STOPPED = "stopped on request"
"""By `psctl stop`."""
CANCELLED = "cancelled on request"
"""By `psctl cancel`."""


def came_to_its_end(exit_code: int, reason: str) -> bool:
    """Whether a job that has ended did so by itself and well: its steps are done, a metric is reached, data used up."""
    return not exit_code and reason not in (STOPPED, CANCELLED)
