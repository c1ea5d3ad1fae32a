"""Snapshots that readers hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpc_ps.psserver.lead.joining import check_list
from grpc_ps.psserver.lead.log import Pin
from grpc_ps.psserver.lead.refusal import Refusal

if TYPE_CHECKING:
    from grpc_ps.psserver.lead.job import Job

MAX_PINS = 8
"""Snapshots that readers may hold at once."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A snapshot that is held until `end`, and the shards that still hold it."""

    end: float
    holders: set[int]


class Pins:
    """Which snapshots are pinned, where, and until when. Not guarded: used by the lead's event loop alone.

    One counts as long as any shard holds it, for that is where the memory is. Every shard lets go of it after the
    limit `pin`.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pins: dict[int, _Held] = {}

    def add(self, snapshot: int, now: float, *, averages: bool = False, listed: int = 0) -> None:
        """Pins this position's values for a reader; `averages` in their place, if the job keeps any.

        `listed` is how many shards the reader knows, 0 if it does not say: who does not know all would leave the others
        with a snapshot that nobody reads.

        Raises:
            Refusal: MISMATCH for another number of shards, NOT_OPEN without values, FULL with too many readers.
        """
        job = self._job
        if listed:
            check_list(listed, job.shards.count)
        if job.training is None or job.phase == "RESTORING":
            raise Refusal("NOT_OPEN", f"no values yet: the job waits for {job.waiting_for() or 'its first worker'}")
        self._pins = {name: pin for name, pin in self._pins.items() if pin.end > now}
        if len(self._pins) >= MAX_PINS:
            raise Refusal("FULL", f"{MAX_PINS} readers hold snapshots; try again")
        self._pins[snapshot] = _Held(now + job.limits.pin, set(range(job.shards.count)))
        kept = job.definition is not None and bool(job.definition.settings["moving_average"])
        job.log.append(Pin(snapshot, job.step, int(job.limits.pin * 1000), averages and kept))

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
