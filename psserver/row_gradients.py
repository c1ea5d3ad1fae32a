"""Gradients of rows before they are applied: the weighted mean of a round, limits, and sums of squares. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from grpc_ps.client.shared.image import aligned_buffer
from grpc_ps.client.shared.rows import Rows, distinct
from grpc_ps.psserver.clipping import clip_by_value, scale


def average_rows(parts: Sequence[Rows], weights: Sequence[float]) -> Rows:
    """Returns the weighted mean of one table's gradients: a row that a push does not have counts as zeros of it.

    Summed in the order given, in float32, as `mean.average` does. A weight of 1 multiplies nothing.
    """
    if len(parts) == 1 and weights[0] == 1:
        return parts[0]
    ids = distinct(np.concatenate([part.ids for part in parts]))
    dim = parts[0].values.shape[1]
    total = aligned_buffer(len(ids) * dim * 4).view(np.float32).reshape(len(ids), dim)
    with np.errstate(over="ignore", invalid="ignore"):
        for part, weight in zip(parts, weights, strict=True):
            # Each part has an id once, so nothing is added twice to one row.
            total[np.searchsorted(ids, part.ids)] += part.values * np.float32(weight)
    return Rows(ids, total)


def limit_rows(rows: Rows, clip_value: float, factor: float) -> None:
    """Clips and scales gradients, in place."""
    flat = rows.values.reshape(-1)
    if clip_value:
        clip_by_value(flat, clip_value)
    scale(flat, factor)


def squares_of_rows(rows: Rows) -> tuple[float, float]:
    """Returns the sum of a table's squared gradients on this shard, as a number and what that lacks by rounding.

    The two together are exact to twice float64's digits. So the lead, which adds all of them and rounds once, finds the
    same norm whichever shards the rows are on.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        wide = rows.values.astype(np.float64)
        each = np.add.reduce(np.square(wide, out=wide), axis=1)
    if not np.isfinite(each).all():
        return float(each.sum()), 0.0
    numbers = each.tolist()
    total = math.fsum(numbers)
    return total, math.fsum([*numbers, -total])


def squares_of_tables(tables: Iterable[Rows]) -> list[float]:
    """Returns both numbers of each table, one after the other."""
    return [number for rows in tables for number in squares_of_rows(rows)]
