"""What became of pushes, counted for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from grpc_ps.psserver.lead.log import Result

STALENESS_RANGES = 12
"""Ranges that stalenesses are counted in: 0, 1, 2-3, 4-7, and so on, each twice as long; the last has no end."""


def staleness_range(staleness: int) -> int:
    """Number of the range that it is counted in."""
    return min(staleness.bit_length(), STALENESS_RANGES - 1)


@dataclass(slots=True)
class Tally:
    """What became of pushes: how many by outcome; of those applied how many by `staleness_range`, and the sum of that.

    For people.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    staleness: Counter[int] = field(default_factory=Counter)
    total_staleness: int = 0

    def add(self, result: Result) -> None:
        """Counts one more."""
        self.outcomes[result.outcome] += 1
        if result.outcome == "APPLIED":
            self.staleness[staleness_range(result.staleness)] += 1
            self.total_staleness += result.staleness

    def __add__(self, other: Tally) -> Tally:
        total = self.total_staleness + other.total_staleness
        return Tally(self.outcomes + other.outcomes, self.staleness + other.staleness, total)

    @property
    def staleness_counts(self) -> list[int]:
        """By range, all of them."""
        return [self.staleness[place] for place in range(STALENESS_RANGES)]
