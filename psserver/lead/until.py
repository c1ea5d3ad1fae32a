"""Ending a job when an evaluation is good enough: `Settings.until` in `job.proto`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

_FORM = re.compile(r"(\w+)(>=|<=)(\S+)")


@dataclass(frozen=True, slots=True)
class Until:
    """A metric and the value that it must reach, from below or from above."""

    metric: str
    relation: str
    value: float

    def reached(self, metrics: Mapping[str, float]) -> bool:
        """Whether an evaluation has reached it; one without the metric, or with one that is not finite, has not."""
        found = metrics.get(self.metric, math.nan)
        if not math.isfinite(found):
            return False
        return found >= self.value if self.relation == ">=" else found <= self.value


def parse_until(text: str) -> Until | None:
    """Returns what "METRIC>=NUMBER" or "METRIC<=NUMBER" means, None for an empty text.

    Raises:
        ValueError: the text has another form.
    """
    if not text:
        return None
    found = _FORM.fullmatch(text)
    try:
        value = float(found[3]) if found else math.nan
    except ValueError:
        value = math.nan
    if found is None or not math.isfinite(value):
        raise ValueError("must be METRIC>=NUMBER or METRIC<=NUMBER")
    return Until(found[1], found[2], value)
