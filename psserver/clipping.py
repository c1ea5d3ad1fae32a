"""Limits on gradients before they are applied, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def clip_by_value(block: Array, limit: float) -> None:
    """Limits every element to -`limit` .. `limit`, rounded to the block's own type."""
    with np.errstate(over="ignore"):
        bound = block.dtype.type(limit)
    np.clip(block, -bound, bound, out=block)


def scale(block: Array, factor: float) -> None:
    """Multiplies every element by a factor that is rounded to float32; 16-bit elements are rounded once.

    A factor of 1 multiplies nothing.
    """
    if factor == 1:
        return
    wide = block.dtype if block.dtype.itemsize >= 4 else np.dtype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply(block, wide.type(factor), out=block, dtype=wide, casting="same_kind")
