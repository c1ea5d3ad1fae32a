"""Sums of squares of gradients: one a block, the same bits whatever lies beside it or how the bytes arrived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.blocks import Block
from grpc_ps.client.shared.image import Bytes, numpy_dtype, padded

PIECE = 8192
"""Elements that are squared at a time: they stay in the cache, and OpenBLAS, which shares dot products of more than
10,000 elements among threads, does them in one way."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where a block lies in an image, in bytes."""

    start: int
    stop: int
    dtype: np.dtype[Any]


def trainable_spans(blocks: Iterable[Block]) -> tuple[Span, ...]:
    """Returns where the trainable ones of a shard's blocks lie in the image of a push.

    Blocks are those of the placement, not the runs that a layout makes of them: the sums must be of the same elements
    whatever the number of shards.
    """
    spans = []
    end = 0
    for block in blocks:
        if not block.floating:
            continue
        if block.trainable:
            spans.append(Span(end, end + block.nbytes, numpy_dtype(block.dtype)))
        end += padded(block.nbytes)
    return tuple(spans)


class Squares:
    """The sums of an image that is filled from its beginning: each piece is squared while it is in the cache.

    Made once for the memory of an image, which may be filled again (`restart`). Sums are in float64; squares of
    float64 elements may overflow to infinity.

    Attributes:
        sums: of each span, complete once the image is full.
    """

    def __init__(self, spans: Sequence[Span], buffer: Bytes) -> None:
        self._spans = spans
        self._buffer = buffer
        self._scratch = np.empty(PIECE)
        self.restart()

    def restart(self) -> None:
        """Begins anew, for an image that is filled from its beginning again."""
        self.sums = [0.0] * len(self._spans)
        self._pieces = _pieces(self._spans)
        self._next = next(self._pieces, None)

    def advance(self, filled: int) -> None:
        """Adds what is complete when the first `filled` bytes of the image are there."""
        with np.errstate(over="ignore", invalid="ignore"):
            while self._next is not None and self._next[1].stop <= filled:
                block, piece = self._next
                self.sums[block] += self._sum(self._buffer[piece.start : piece.stop].view(piece.dtype))
                self._next = next(self._pieces, None)

    def _sum(self, elements: npt.NDArray[Any]) -> float:
        wide = self._scratch[: len(elements)]
        np.copyto(wide, elements)
        return float(np.dot(wide, wide))


def _pieces(spans: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    """Yields (number of the span, piece of it)."""
    for number, span in enumerate(spans):
        step = PIECE * span.dtype.itemsize
        for start in range(span.start, span.stop, step):
            yield number, Span(start, min(start + step, span.stop), span.dtype)


def squares(spans: Sequence[Span], buffer: Bytes) -> list[float]:
    """Returns the sum of squares of each span of a full image."""
    running = Squares(spans, buffer)
    running.advance(len(buffer))
    return running.sums
