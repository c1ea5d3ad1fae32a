"""What an update must be multiplied with: its learning rate, and the factor that clips its norm."""

from __future__ import annotations

import math
import struct

from simulation.messages import square
from simulation.violation import Violation

from grpc_ps.psserver.lead.log import Apply
from grpc_ps.psserver.lead.settings import Value


class UpdateReference:
    """The numbers of updates, computed from what every shard reports.

    Attributes:
        factor: what the schedule's learning rate is multiplied with now.
    """

    def __init__(self, settings: dict[str, Value], shards: int) -> None:
        self.factor = 1.0
        self._rate = float(settings["learning_rate"])
        self._limit = float(settings["clip_norm"]) or float(settings["global_clip_norm"])
        self._shards = range(shards)

    def demand(self, entry: Apply) -> None:
        """An update has the right learning rate and scale; the job has one parameter and a constant schedule."""
        if entry.learning_rate != self._rate * self.factor:
            raise Violation("learning-rate", f"{entry} should have {self._rate * self.factor}")
        if entry.scales != self._scales(entry):
            raise Violation("scales", f"{entry} should have {self._scales(entry)}")

    def _scales(self, entry: Apply) -> tuple[float, ...]:
        if not self._limit:
            return ()
        pushes = tuple(push for push, _ in entry.pushes)
        norm = math.sqrt(math.fsum(value for shard in self._shards for _, value in square(shard, pushes)))
        return (float32(self._limit / max(norm, self._limit)),)


def float32(value: float) -> float:
    """Rounds a number to float32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
