"""Snapshots that readers hold."""

from __future__ import annotations

from dataclasses import dataclass

from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.shards import Shards

MAX_PINS = 8
"""Snapshots that readers may hold at once."""


@dataclass(frozen=True, slots=True)
class _Pin:
    """A snapshot that is held until `end`, and the shards that still hold it."""

    end: float
    holders: set[int]


class Pins:
    """Which snapshots are pinned, where, and until when. Not guarded: used by the lead's event loop alone.

    One counts as long as any shard holds it, for that is where the memory is.

    Args:
        keep: seconds after which every shard lets go of a snapshot.
        shards: who pins what is pinned.
    """

    def __init__(self, keep: float, shards: Shards) -> None:
        self._keep = keep
        self._shards = shards
        self._pins: dict[int, _Pin] = {}

    def add(self, snapshot: int, now: float) -> None:
        """Makes room for a reader.

        Raises:
            Refusal: FULL with too many readers.
        """
        self._pins = {name: pin for name, pin in self._pins.items() if pin.end > now}
        if len(self._pins) >= MAX_PINS:
            raise Refusal("FULL", f"{MAX_PINS} readers hold snapshots; try again")
        self._pins[snapshot] = _Pin(now + self._keep, set(range(self._shards.count)))

    def drop(self, shard: int, snapshot: int) -> None:
        """A shard has let go of a snapshot."""
        pin = self._pins.get(snapshot)
        if pin is not None:
            pin.holders.discard(shard)
            if not pin.holders:
                del self._pins[snapshot]

    def __len__(self) -> int:
        """How many are held."""
        return len(self._pins)
