"""Pushes that are rounded, or have only the largest elements: what arrives becomes the image of gradients."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.blocks import ITEM_BYTES, Block
from grpc_ps.client.shared.image import Buffer, Bytes, Layout, block_views, gaps, numpy_dtype, padded, scatter
from grpc_ps.client.shared.rounding import are_indices
from grpc_ps.client.shared.wire_form import INDEX_BYTES, Selection, WireForm, narrow_gradients, sparse_gradients

Array = npt.NDArray[Any]


class Unpacking(Protocol):
    """Fills one image, made once a place like that, with one push after the other.

    Attributes:
        total_bytes: of a push as it travels.
    """

    total_bytes: int

    def take(self, start: int, data: Buffer) -> int:
        """Takes the next bytes; returns up to which byte the image is filled."""

    def finish(self) -> str:
        """Fills the rest of the image when all is here. Returns what is wrong with the push, empty if nothing is."""


def unpacking(blocks: Sequence[Block], form: WireForm, dense: Layout, buffer: Bytes) -> Unpacking | None:
    """Returns what fills the image of gradients in `buffer`; None where pushes travel as that image.

    Args:
        blocks: the shard's, of the placement.
        dense: lays out that image.
    """
    if not form.lossy:
        return None
    if form.ratio is None:
        return _NarrowUnpacking(narrow_gradients(blocks, form), dense, buffer)
    return _SparseUnpacking(blocks, form, buffer)


class _NarrowUnpacking:
    """Widens elements as they come."""

    def __init__(self, wire: Layout, dense: Layout, buffer: Bytes) -> None:
        self.total_bytes = wire.total_bytes
        self._wire = wire
        self._dense = dense
        self._targets = [
            view if block.dtype != narrow.dtype else view.view(np.uint8)
            for view, block, narrow in zip(block_views(dense, buffer), dense.blocks, wire.blocks, strict=True)
        ]
        self._buffer = buffer
        self._gaps = gaps(dense)

    def take(self, start: int, data: Buffer) -> int:
        if start == 0:
            # Initial values may have been in this memory before.
            self._buffer[self._gaps] = 0
        scatter(self._wire, start, data, self._targets)
        end = start + len(data)
        index = bisect_right(self._wire.offsets, end - 1) - 1
        inside = end - self._wire.offsets[index]
        if inside < self._wire.blocks[index].nbytes:
            elements = inside // ITEM_BYTES[self._wire.blocks[index].dtype]
            return self._dense.offsets[index] + elements * ITEM_BYTES[self._dense.blocks[index].dtype]
        following = index + 1
        return self._dense.offsets[following] if following < len(self._dense.offsets) else self._dense.total_bytes

    def finish(self) -> str:
        return ""


class _SparseUnpacking:
    """Keeps what comes, for indices are of no use without their elements, and fills the image in the end."""

    def __init__(self, blocks: Sequence[Block], form: WireForm, buffer: Bytes) -> None:
        layout = sparse_gradients(blocks, form)
        self.total_bytes = layout.total_bytes
        self._dtype = numpy_dtype(form.dtype)
        self._buffer = buffer
        self._wire = np.zeros(layout.total_bytes, np.uint8)
        self._fields: list[tuple[Selection, Bytes]] = []
        end = 0
        for selection in layout.selections:
            nbytes = selection.block.nbytes
            self._fields.append((selection, buffer[end : end + nbytes]))
            end += padded(nbytes)

    def take(self, start: int, data: Buffer) -> int:
        self._wire[start : start + len(data)] = np.frombuffer(data, np.uint8)
        return 0

    def finish(self) -> str:
        self._buffer[...] = 0
        for selection, target in self._fields:
            if selection.count is None:
                target[...] = self._wire[selection.values : selection.values + len(target)]
            elif not self._place(selection, selection.count, target.view(np.float32)):
                block = selection.block
                where = f"block {block.start} to {block.stop} of {block.parameter}"
                return f"the indices in {where} do not rise, or are not below {block.size}"
        return ""

    def _place(self, selection: Selection, count: int, target: Array) -> bool:
        values = self._wire[selection.values : selection.values + count * self._dtype.itemsize].view(self._dtype)
        if count == len(target):
            target[...] = values
            return True
        indices = self._wire[selection.indices : selection.indices + count * INDEX_BYTES].view("<u4")
        if not are_indices(indices, len(target)):
            return False
        target[indices] = values
        return True
