"""The weighted mean of a round's gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def weighted_mean(parts: Sequence[Sequence[Array]], weights: Sequence[float]) -> list[Array]:
    """Returns Σ wᵢ·gᵢ block by block, summed in the order given. The first part's memory is overwritten.

    A weight of 1 multiplies nothing. 16-bit elements are summed in float32 and rounded once.

    Args:
        parts: for each push its blocks, in one order.
        weights: for each push its weight, rounded to float32; they sum to 1.
    """
    if len(parts) == 1 and weights[0] == 1:
        return list(parts[0])
    return [_mean_block(blocks, weights) for blocks in zip(*parts, strict=True)]


def _mean_block(blocks: Sequence[Array], weights: Sequence[float]) -> Array:
    target = blocks[0]
    wide = target.dtype if target.dtype.itemsize >= 4 else np.dtype(np.float32)
    total = np.multiply(target, wide.type(weights[0]), dtype=wide)
    for block, weight in zip(blocks[1:], weights[1:], strict=True):
        total += np.multiply(block, wide.type(weight), dtype=wide)
    np.copyto(target, total, casting="same_kind")
    return target
