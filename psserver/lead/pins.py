"""Snapshots that readers hold."""

from __future__ import annotations

from grpc_ps.psserver.lead.refusal import Refusal

MAX_PINS = 8
"""Snapshots that readers may hold at once."""


class Pins:
    """Which snapshots are pinned, and until when. Not guarded: used by the lead's event loop alone.

    Args:
        keep: seconds after which a snapshot may be let go of.
    """

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._ends: dict[int, float] = {}

    def add(self, snapshot: int, now: float) -> None:
        """Makes room for a reader.

        Raises:
            Refusal: FULL with too many readers.
        """
        self._ends = {name: end for name, end in self._ends.items() if end > now}
        if len(self._ends) >= MAX_PINS:
            raise Refusal("FULL", f"{MAX_PINS} readers hold snapshots; try again")
        self._ends[snapshot] = now + self._keep

    def drop(self, snapshot: int) -> None:
        """A reader has what it wanted."""
        self._ends.pop(snapshot, None)
