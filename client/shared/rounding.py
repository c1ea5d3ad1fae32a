"""What is sent in the place of float32: numbers of 16 bits, or the largest ones. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PIECE = 64 * 1024
"""Elements that are rounded at a time: what is made of them stays in the cache."""

_LARGEST_HALF = np.float32(65504)
# Numbers whose squares add up to less are all below the largest.
_SURELY_BELOW = 65504.0**2
_MAGNITUDE = np.uint32(0x7FFFFFFF)


def narrow(values: Array, out: Array) -> None:
    """Rounds float32 to the type of `out`, to the nearest, of two equally near to the even one.

    float16: what is beyond its largest number becomes that, and NaN and infinities stay. bfloat16 has the range of
    float32; the few numbers above its largest become infinite. `out` may be float32 too.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if out.dtype == np.float16 and not np.dot(values, values) < _SURELY_BELOW:
            values = _limited(values)
        out[...] = values


def _limited(values: Array) -> Array:
    limited = np.clip(values, -_LARGEST_HALF, _LARGEST_HALF)
    np.copyto(limited, values, where=~np.isfinite(values))
    return limited


def largest(values: Array, count: int, scratch: Array) -> Array:
    """Returns the indices, ascending, of the `count` float32 values of largest magnitude.

    Of equal ones those with the lowest indices; NaN counts as larger than infinity. So the result is the same on every
    machine.

    Args:
        values: flat, contiguous, at least `count` of them.
        scratch: uint32, at least as long; overwritten.
    """
    size = len(values)
    if count >= size:
        return np.arange(size)
    # Without their sign the bits of floats are in the order of their magnitudes, and whole numbers are cheaper to part.
    magnitudes = np.bitwise_and(values.view(np.uint32), _MAGNITUDE, out=scratch[:size])
    parted = np.partition(magnitudes, size - count)
    least = parted[size - count]
    above = np.flatnonzero(magnitudes > least)
    equal = np.flatnonzero(magnitudes == least)[: count - len(above)]
    return np.sort(np.concatenate((above, equal)))


def are_indices(indices: Array, size: int) -> bool:
    """Whether these are indices of that many elements, each above the one before."""
    return bool(len(indices) == 0 or (indices[-1] < size and np.all(indices[1:] > indices[:-1])))
