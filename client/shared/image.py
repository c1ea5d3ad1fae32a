"""The image of a shard: its blocks in memory order, each at a multiple of 64 bytes, gaps zero. Pure.

`protos/tensor.proto` has the format. An image is described by a `Layout`; it need not exist in one piece of memory:
`gather` reads a range of it out of one buffer per block, `scatter` writes a range into one array per block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby
from typing import Any, Protocol, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.blocks import Block

ALIGNMENT = 64
Buffer: TypeAlias = bytes | bytearray | memoryview
Bytes: TypeAlias = npt.NDArray[np.uint8]

_ZEROS = bytes(ALIGNMENT)


class Extent(Protocol):
    """An image of which only the length matters."""

    @property
    def total_bytes(self) -> int:
        """A multiple of 64."""


@dataclass(frozen=True)
class Region:
    """A stretch of an image whose blocks, with their gaps, can be one tensor: one type, and trainable or not alike.

    Every element of an update depends on that element alone, so one kernel does for all blocks of a region.

    Attributes:
        blocks: what it has, in order.
        offset, nbytes: where it lies in the image, multiples of 64 bytes; the next region begins where it ends.
        starts: where each block begins in the region, in bytes.
    """

    blocks: tuple[Block, ...]
    offset: int
    nbytes: int
    starts: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """Type of all its blocks."""
        return self.blocks[0].dtype

    @property
    def trainable(self) -> bool:
        """Whether gradients touch it."""
        return self.blocks[0].trainable

    @property
    def floating(self) -> bool:
        """Whether updates change it."""
        return self.blocks[0].floating

    @property
    def size(self) -> int:
        """Elements, gaps included."""
        return self.nbytes // numpy_dtype(self.dtype).itemsize

    def spans(self) -> Iterable[tuple[Block, slice]]:
        """Each block with its place in the region, in elements."""
        item = numpy_dtype(self.dtype).itemsize
        for block, start in zip(self.blocks, self.starts, strict=True):
            yield block, slice(start // item, start // item + block.size)


@dataclass(frozen=True)
class Layout:
    """Where each block begins in an image, and the image's length, a multiple of 64 bytes.

    Blocks of one parameter that follow each other without a gap stand here as one: a shard that has a whole parameter
    then updates it with one kernel instead of sixteen. The image's bytes are the same, and so is every result, for
    blocks end at multiples of 1024 elements.
    """

    blocks: tuple[Block, ...]
    offsets: tuple[int, ...]
    total_bytes: int

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The image in as few pieces as possible of one kind each."""
        ends = [*self.offsets, self.total_bytes][1:]
        placed = list(zip(self.blocks, self.offsets, ends, strict=True))
        groups = [list(group) for _, group in groupby(placed, key=lambda it: (it[0].dtype, it[0].trainable))]
        return tuple(_region(group) for group in groups)


def _region(placed: Sequence[tuple[Block, int, int]]) -> Region:
    offset, end = placed[0][1], placed[-1][2]
    starts = tuple(start - offset for _, start, _ in placed)
    return Region(tuple(block for block, _, _ in placed), offset, end - offset, starts)


def padded(nbytes: int) -> int:
    """Rounds up to where the next block may begin."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def values_layout(blocks: Iterable[Block]) -> Layout:
    """Lays out the image of values: all blocks of a shard."""
    return _layout(blocks)


def gradients_layout(blocks: Iterable[Block]) -> Layout:
    """Lays out the image of a push: a shard's floating-point blocks."""
    return _layout(block for block in blocks if block.floating)


def _layout(blocks: Iterable[Block]) -> Layout:
    runs: list[Block] = []
    offsets: list[int] = []
    end = 0
    for block in blocks:
        if runs and _follows(block, runs[-1]):
            runs[-1] = replace(runs[-1], stop=block.stop)
        else:
            runs.append(block)
            offsets.append(end)
        end += padded(block.nbytes)
    return Layout(tuple(runs), tuple(offsets), end)


def _follows(block: Block, before: Block) -> bool:
    adjacent = (block.parameter, block.start) == (before.parameter, before.stop)
    return adjacent and before.nbytes % ALIGNMENT == 0


@cache
def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """Returns the little-endian numpy type of that name; bfloat16 comes from ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name).newbyteorder("<")


def aligned_buffer(nbytes: int) -> Bytes:
    """Makes a zeroed, writable buffer of that many bytes that begins at a multiple of 64 bytes.

    TensorFlow takes only such memory without a copy.
    """
    memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    skip = -memory.ctypes.data % ALIGNMENT
    return memory[skip : skip + nbytes]


def block_views(layout: Layout, buffer: Bytes) -> list[npt.NDArray[np.generic]]:
    """Returns one typed, flat view of an image in memory per block; writing to a view writes to the image."""
    return [
        buffer[offset : offset + block.nbytes].view(numpy_dtype(block.dtype))
        for block, offset in zip(layout.blocks, layout.offsets, strict=True)
    ]


def region_views(layout: Layout, buffer: Bytes) -> list[npt.NDArray[np.generic]]:
    """Returns the same for each region, gaps included."""
    return [
        buffer[region.offset : region.offset + region.nbytes].view(numpy_dtype(region.dtype))
        for region in layout.regions
    ]


def gaps(layout: Layout) -> npt.NDArray[np.intp]:
    """Returns the places of all bytes of an image that belong to no block."""
    ends = [*layout.offsets, layout.total_bytes][1:]
    spans = zip(layout.blocks, layout.offsets, ends, strict=True)
    found = [np.arange(start + block.nbytes, end) for block, start, end in spans]
    return np.concatenate(found) if found else np.empty(0, np.intp)


def chunk_spans(layout: Extent, chunk_bytes: int) -> tuple[tuple[int, int], ...]:
    """Cuts an image into (offset, length) of its chunks; none for an empty image.

    `chunk_bytes` is the largest chunk; lengths are multiples of 64 bytes.
    """
    step = chunk_bytes // ALIGNMENT * ALIGNMENT
    if step < ALIGNMENT:
        raise ValueError(f"a chunk has at least {ALIGNMENT} bytes, not {chunk_bytes}")
    total = layout.total_bytes
    return tuple((offset, min(step, total - offset)) for offset in range(0, total, step))


def gather(layout: Layout, offset: int, nbytes: int, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Returns the pieces, padding included, that make up a range of an image. Nothing is copied.

    `buffers` has one flat buffer of bytes per block of the layout.
    """
    end = offset + nbytes
    pieces: list[Buffer] = []
    index = bisect_right(layout.offsets, offset) - 1
    while offset < end:
        start = layout.offsets[index]
        size = layout.blocks[index].nbytes
        stop = min(end, start + size)
        if offset < stop:
            whole = offset == start and stop - start == size
            pieces.append(buffers[index] if whole else memoryview(buffers[index])[offset - start : stop - start])
            offset = stop
        gap = min(end - offset, -offset % ALIGNMENT)
        if gap:
            pieces.append(_ZEROS[:gap])
            offset += gap
        index += 1
    return pieces


def scatter(layout: Layout, offset: int, data: Buffer, destinations: Sequence[npt.NDArray[Any]]) -> None:
    """Writes a range of an image into the blocks' arrays; padding is dropped.

    `destinations` has one flat array per block of the layout: of its bytes, or, to which its elements are converted, of
    another floating-point type. Raises ValueError for a range outside.
    """
    source = np.frombuffer(data, np.uint8)
    end = offset + source.size
    if offset < 0 or end > layout.total_bytes:
        raise ValueError(f"bytes {offset} to {end} are outside an image of {layout.total_bytes}")
    index = bisect_right(layout.offsets, offset) - 1
    at = offset
    while at < end:
        start = layout.offsets[index]
        size = layout.blocks[index].nbytes
        stop = min(end, start + size)
        if at < stop:
            piece, into = source[at - offset : stop - offset], destinations[index]
            if into.dtype == np.uint8:
                into[at - start : stop - start] = piece
            else:
                elements = piece.view(numpy_dtype(layout.blocks[index].dtype))
                first = (at - start) // elements.itemsize
                into[first : first + len(elements)] = elements
        index += 1
        at = layout.offsets[index] if index < len(layout.offsets) else end
