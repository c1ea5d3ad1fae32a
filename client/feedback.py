"""What pushes keep back of gradients when they are rounded, or only their largest elements are sent.

With g the gradient and r what was kept back before: sent = Q(g + r), r' = g + r - sent. Nothing is lost in the long run
("error feedback": Seide et al., 1-Bit Stochastic Gradient Descent, 2014; Karimireddy et al., 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.blocks import Block
from grpc_ps.client.shared.image import Buffer, Bytes, Layout, aligned_buffer, numpy_dtype
from grpc_ps.client.shared.narrow_image import narrow_range
from grpc_ps.client.shared.rounding import PIECE, largest, narrow
from grpc_ps.client.shared.wire_form import (
    INDEX_BYTES,
    Selection,
    WireForm,
    narrow_gradients,
    residuals_layout,
    sparse_gradients,
)

Array = npt.NDArray[Any]


class PartSource(Protocol):
    """The image of one push for one shard. The same range has the same bytes each time, until `keep`."""

    @property
    def total_bytes(self) -> int:
        """Length of the image."""

    def pieces(self, offset: int, nbytes: int) -> list[Buffer]:
        """Returns a range, valid until the next call."""


class Feedback:
    """What is kept back of the parameters that do not travel as they are, by a worker that pushes in one thread.

    Two sets of arrays take turns: what was kept back before a push stays until that is decided.

    Args:
        shards: the blocks of the placement, by shard.
        form: of pushes; it is lossy.
    """

    def __init__(self, shards: Sequence[Sequence[Block]], form: WireForm) -> None:
        self._form = form
        self._shards = shards
        self._layouts = [residuals_layout(blocks, form) for blocks in shards]
        sizes: dict[str, int] = {}
        for layout in self._layouts:
            for block in layout.blocks:
                sizes[block.parameter] = max(sizes.get(block.parameter, 0), block.stop)
        self.old: dict[str, Array] = {name: _zeros(size) for name, size in sizes.items()}
        self.new: dict[str, Array] = {name: _zeros(size) for name, size in sizes.items()}
        self._narrow = [narrow_gradients(blocks, form) for blocks in shards] if form.ratio is None else []
        self._sparse = [] if form.ratio is None else [sparse_gradients(blocks, form) for blocks in shards]
        self._scratch = np.empty(PIECE, np.float32)

    def part(self, shard: int, flat: Mapping[str, memoryview], chunk_bytes: int) -> PartSource:
        """Returns the image of gradients for one shard; `flat` has the bytes of the whole tensors by name."""
        if self._form.ratio is None:
            return _NarrowPart(self, self._narrow[shard], flat, chunk_bytes)
        return _SparsePart(self, self._sparse[shard].selections, self._sparse[shard].total_bytes, flat, self._form)

    def keep(self) -> None:
        """The push is in the model: what it kept back goes with the next one."""
        self.old, self.new = self.new, self.old

    def layout(self, shard: int) -> Layout:
        """The image in which what is kept back of a shard's blocks travels."""
        return self._layouts[shard]

    def kept(self, shard: int, *, applied: bool) -> list[Bytes]:
        """Returns the bytes of each block of that image: before the push on its way, or, `applied`, behind it."""
        arrays = self.new if applied else self.old
        blocks = self._layouts[shard].blocks
        return [arrays[block.parameter][block.start : block.stop].view(np.uint8) for block in blocks]

    def round_to(self, name: str, start: int, gradient: Array, out: Array) -> None:
        """Rounds a range of a parameter's gradient, which begins at element `start`, with what was kept back."""
        old, new = self.old[name], self.new[name]
        for first in range(0, len(gradient), PIECE):
            piece, sent = gradient[first : first + PIECE], out[first : first + PIECE]
            span = slice(start + first, start + first + len(piece))
            rest, widened = new[span], self._scratch[: len(piece)]
            with np.errstate(over="ignore", invalid="ignore"):
                np.add(piece, old[span], out=rest)
                narrow(rest, sent)
                widened[...] = sent
                np.subtract(rest, widened, out=rest)


def _zeros(size: int) -> Array:
    return aligned_buffer(size * 4).view(np.float32)


class _NarrowPart:
    """Every element, in a type of 16 bits. Made a chunk at a time: the first one travels while the next is made."""

    def __init__(self, feedback: Feedback, layout: Layout, flat: Mapping[str, memoryview], chunk_bytes: int) -> None:
        self.total_bytes = layout.total_bytes
        self._feedback = feedback
        self._layout = layout
        self._sources = [_source(block, feedback, flat) for block in layout.blocks]
        self._out = np.empty(min(chunk_bytes, layout.total_bytes), np.uint8)

    def pieces(self, offset: int, nbytes: int) -> list[Buffer]:
        """Returns a range, valid until the next call."""
        narrow_range(self._layout, offset, self._out[:nbytes], self._sources, self._round)
        return [self._out[:nbytes].data]

    def _round(self, index: int, first: int, stop: int, out: Array) -> None:
        block = self._layout.blocks[index]
        self._feedback.round_to(block.parameter, block.start + first, self._sources[index][first:stop], out)


def _source(block: Block, feedback: Feedback, flat: Mapping[str, memoryview]) -> Array:
    data = np.frombuffer(flat[block.parameter], np.uint8)
    if block.parameter in feedback.old:
        return data.view(np.float32)[block.start : block.stop]
    return data[block.byte_span]


class _SparsePart:
    """The largest elements of each block, with their indices: little, so made as a whole with the first chunk."""

    def __init__(
        self,
        feedback: Feedback,
        selections: Sequence[Selection],
        total_bytes: int,
        flat: Mapping[str, memoryview],
        form: WireForm,
    ) -> None:
        self.total_bytes = total_bytes
        self._feedback = feedback
        self._selections = selections
        self._flat = flat
        self._dtype = numpy_dtype(form.dtype)
        self._image: Bytes | None = None

    def pieces(self, offset: int, nbytes: int) -> list[Buffer]:
        """Returns a range."""
        if self._image is None:
            self._image = self._made()
        return [self._image[offset : offset + nbytes].data]

    def _made(self) -> Bytes:
        image = np.zeros(self.total_bytes, np.uint8)
        scratch = np.empty(max((s.block.size for s in self._selections), default=0), np.uint32)
        for selection in self._selections:
            block, at = selection.block, selection.values
            source = _source(block, self._feedback, self._flat)
            if selection.count is None:
                image[at : at + block.nbytes] = source
            elif selection.count == block.size:
                values = image[at : at + block.size * self._dtype.itemsize].view(self._dtype)
                self._feedback.round_to(block.parameter, block.start, source, values)
            else:
                self._select(selection, selection.count, source, image, scratch)
        return image

    def _select(self, selection: Selection, count: int, gradient: Array, image: Bytes, scratch: Array) -> None:
        block = selection.block
        span = slice(block.start, block.stop)
        rest = self._feedback.new[block.parameter][span]
        indices = image[selection.indices : selection.indices + count * INDEX_BYTES].view("<u4")
        values = image[selection.values : selection.values + count * self._dtype.itemsize].view(self._dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            np.add(gradient, self._feedback.old[block.parameter][span], out=rest)
            chosen = largest(rest, count, scratch)
            wanted = rest[chosen]
            narrow(wanted, values)
            rest[chosen] = wanted - values.astype(np.float32)
        indices[...] = chosen
