"""What is said of a set of measurements: the median and the spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Spread:
    """Median, extremes and the 90th percentile, in the unit of what was measured."""

    median: float
    min: float
    p90: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[(len(ordered) * 9 - 1) // 10], ordered[-1])

    def record(self) -> dict[str, float]:
        """For JSON, in four significant digits."""
        return {name: rounded(value) for name, value in asdict(self).items()}

    def times(self) -> str:
        """For tables of times, whose slow end is noise: median (min, p90)."""
        return f"{self.median:.2f} ({self.min:.2f}, {self.p90:.2f})"

    def range(self) -> str:
        """For few values, which are all of interest: median (min to max)."""
        return f"{self.median:.2f} ({self.min:.2f} to {self.max:.2f})"


def rounded(value: float) -> float:
    return float(f"{value:.4g}")
