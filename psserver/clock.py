"""The time that the lead's decisions see."""

from __future__ import annotations

import time

STOOD_STILL = 1.0
"""Seconds between two ticks after which this process has not listened."""


class Clock:
    """A monotonic clock, in seconds, that does not run while this process stands still.

    Where it did (importing TensorFlow, stopped by a signal) heartbeats and links are waiting to be read: that time ends
    no wait of any kind. Not guarded: used by the event loop alone.
    """

    def __init__(self) -> None:
        self._stood_still = 0.0
        self._ticked = time.monotonic()

    def now(self) -> float:
        """The present time."""
        return time.monotonic() - self._stood_still

    def tick(self) -> None:
        """Notes that the process runs. To be called much more often than `STOOD_STILL`."""
        real = time.monotonic()
        if real - self._ticked > STOOD_STILL:
            self._stood_still += real - self._ticked
        self._ticked = real
