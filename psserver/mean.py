"""The weighted mean of a round's gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PIECE = 16 * 1024
"""Elements that are averaged at a time."""


def average(parts: Sequence[Sequence[Array]], weights: Sequence[float]) -> None:
    """Writes Σ wᵢ·gᵢ over the first part, block by block, summed in the order given.

    A weight of 1 multiplies nothing. 16-bit elements are summed in float32 and rounded once.

    Args:
        parts: for each push its blocks, in one order.
        weights: for each push its weight, rounded to float32; they sum to 1.
    """
    if len(parts) == 1 and weights[0] == 1:
        return
    # What overflows is infinite afterwards, and that is looked for in the result.
    with np.errstate(over="ignore", invalid="ignore"):
        for blocks in zip(*parts, strict=True):
            for pieces in zip(*map(_pieces, blocks), strict=True):
                _average_piece(pieces, weights)


def _pieces(block: Array) -> list[Array]:
    """Cuts a block so small that all parts' pieces and their sum stay in the cache."""
    return [block[start : start + PIECE] for start in range(0, len(block), PIECE)]


def _average_piece(pieces: Sequence[Array], weights: Sequence[float]) -> None:
    target = pieces[0]
    wide = target.dtype if target.dtype.itemsize >= 4 else np.dtype(np.float32)
    if wide == target.dtype:
        np.multiply(target, wide.type(weights[0]), out=target)
        for piece, weight in zip(pieces[1:], weights[1:], strict=True):
            # The pushes are not used again, so nothing need be made for the products.
            target += np.multiply(piece, wide.type(weight), out=piece)
        return
    total = np.multiply(target, wide.type(weights[0]), dtype=wide)
    for piece, weight in zip(pieces[1:], weights[1:], strict=True):
        total += np.multiply(piece, wide.type(weight), dtype=wide)
    np.copyto(target, total, casting="same_kind")
