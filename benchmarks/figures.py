"""What is said of a set of measurements: the median and the spread."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

# Columns for the name of a comparison.
_NAME = 36


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


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Ours beside something else, measured in pairs: `ours[i]` and `other[i]` were taken in turn.

    `nbytes` is the size of the model, where that is what a script varies.
    """

    name: str
    unit: str
    ours: Sequence[float]
    other: Sequence[float]
    nbytes: int = 0

    @property
    def ratios(self) -> list[float]:
        """Ours over the other, pair by pair."""
        return [first / second for first, second in zip(self.ours, self.other, strict=True)]

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "unit": self.unit,
            **({"nbytes": self.nbytes} if self.nbytes else {}),
            "ours": [rounded(value) for value in self.ours],
            "other": [rounded(value) for value in self.other],
            "ratio": Spread.of(self.ratios).record(),
        }

    def row(self) -> str:
        """For people: both medians, and the ratio with its range."""
        ours, other = (f"{Spread.of(side).median:.4g}" for side in (self.ours, self.other))
        return f"{self.name:<{_NAME}} {ours:>9} {other:>9} {self.unit:<9} {Spread.of(self.ratios).range()}"


def report(benchmark: str, comparisons: Iterable[Comparison], *, as_json: bool) -> None:
    """Prints what a script has compared: as one line of JSON, or a row of a table as soon as it is there."""
    if as_json:
        print(json.dumps({"benchmark": benchmark, "comparisons": [each.record() for each in comparisons]}))
        return
    print(f"{'':{_NAME}} {'ours':>9} {'other':>9} {'':9} ratio (min to max)", flush=True)
    for each in comparisons:
        print(each.row(), flush=True)


def in_turn(sides: Sequence[Callable[[], float]], repeats: int) -> list[list[float]]:
    """What each side measures, `repeats` times in turn; who goes first alternates."""
    measured: list[list[float]] = [[] for _ in sides]
    numbers = list(range(len(sides)))
    for repeat in range(repeats):
        for number in reversed(numbers) if repeat % 2 else numbers:
            measured[number].append(sides[number]())
    return measured
