"""What a table is: a parameter of rows, of which only those that a batch touches travel. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_PUSH_ROWS = 1 << 20
"""Rows of one table that one push may have at most, whatever the model says: memory is set aside for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """How the rows of a table begin, and how many there may be. Raises ValueError for what cannot be.

    Attributes:
        spread: first values are drawn evenly from -`spread` up to `spread`: a function of seed, table and row alone.
        lazy: a shard holds only the rows that were updated; the others are drawn when they are asked for.
        push_rows: rows that one push may have of it, and want.
        capacity: rows of a lazy table that one shard may come to hold; zero means all.
    """

    spread: float = 0.05
    lazy: bool = False
    push_rows: int = 65536
    capacity: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.spread) and self.spread >= 0):
            raise ValueError(f"spread {self.spread} must be finite, 0 or more")
        if not 1 <= self.push_rows <= MAX_PUSH_ROWS:
            raise ValueError(f"push_rows {self.push_rows} must be from 1 to {MAX_PUSH_ROWS}")
        if self.capacity < 0 or (self.capacity and not self.lazy):
            raise ValueError(f"capacity {self.capacity} must be 0 or more, and is for lazy tables alone")
