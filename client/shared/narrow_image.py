"""An image in the form that it has on the wire where its elements are rounded: made a range at a time. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.image import Bytes, Layout, numpy_dtype
from grpc_ps.client.shared.rounding import PIECE, narrow

Array = npt.NDArray[Any]
Rounding: TypeAlias = Callable[[int, int, int, Array], None]
"""Writes a reduced block's elements to the array: which block, from which element, up to which."""


def block_spans(layout: Layout, offset: int, nbytes: int) -> Iterator[tuple[int, int, int]]:
    """Yields what of the blocks lies in a range of an image: which block, from which of its bytes, up to which."""
    end = offset + nbytes
    index = max(bisect_right(layout.offsets, offset) - 1, 0)
    while index < len(layout.offsets) and layout.offsets[index] < end:
        begin = layout.offsets[index]
        first, stop = max(offset - begin, 0), min(end - begin, layout.blocks[index].nbytes)
        if first < stop:
            yield index, first, stop
        index += 1


def narrow_range(
    layout: Layout, offset: int, out: Bytes, sources: Sequence[Array], round_to: Rounding | None = None
) -> None:
    """Writes a range of the image, as long as `out`.

    `sources` has one flat array a block: float32 elements for those that are reduced, else the block's bytes, uint8.
    `round_to` rounds in the place of `narrow`.
    """
    end = 0
    for index, first, stop in block_spans(layout, offset, len(out)):
        at = layout.offsets[index] + first - offset
        out[end:at] = 0
        end = at + stop - first
        target, source = out[at:end], sources[index]
        if source.dtype == np.uint8:
            target[...] = source[first:stop]
            continue
        dtype = numpy_dtype(layout.blocks[index].dtype)
        elements = first // dtype.itemsize, stop // dtype.itemsize
        if round_to is None:
            narrow_all(source[slice(*elements)], target.view(dtype))
        else:
            round_to(index, *elements, target.view(dtype))
    out[end:] = 0


def narrow_all(source: Array, out: Array) -> None:
    """Rounds any number of elements, a piece at a time."""
    for start in range(0, len(source), PIECE):
        narrow(source[start : start + PIECE], out[start : start + PIECE])
