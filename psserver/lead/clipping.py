"""Limiting the norm of gradients: from sums of squares to the factors that an update travels with."""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Iterable

from grpc_ps.psserver.lead.settings import Settings

Squares = tuple[tuple[int, float], ...]
"""Sums of squared elements of pieces of the gradient, each with the index of its parameter in order of the names."""


class Clipping:
    """What a job says of norms. Clipping by value needs no norm; the shards do it.

    Sums are exact and rounded once, so the factors depend neither on the order of the pieces nor on the shards.

    Attributes:
        by_norm: whether updates need the squares of their gradients.
    """

    def __init__(self, settings: Settings, parameters: int) -> None:
        self._each = float(settings["clip_norm"])
        self._whole = float(settings["global_clip_norm"])
        self._parameters = parameters
        self.by_norm = bool(self._each or self._whole)

    def scales(self, squares: Iterable[tuple[int, float]]) -> tuple[float, ...]:
        """Returns the factors: none, one for the whole gradient, or one a parameter."""
        if self._whole:
            return (_factor(self._whole, [square for _, square in squares]),)
        if not self._each:
            return ()
        pieces: dict[int, list[float]] = defaultdict(list)
        for parameter, square in squares:
            pieces[parameter].append(square)
        return tuple(_factor(self._each, pieces[parameter]) for parameter in range(self._parameters))


def _factor(limit: float, squares: list[float]) -> float:
    """limit / max(norm, limit), as tf.clip_by_norm has it."""
    try:
        norm = math.sqrt(math.fsum(squares))
    except (OverflowError, ValueError):  # finite squares whose sum is not; infinities beside NaN
        norm = math.inf
    return to_float32(limit / max(norm, limit))


def to_float32(value: float) -> float:
    """Rounds a number to float32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
