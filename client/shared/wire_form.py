"""In which form trainable float32 parameters travel: settings `push_dtype`, `pull_dtype` and `compress`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from grpc_ps.client.shared.blocks import ITEM_BYTES, Block
from grpc_ps.client.shared.image import Layout, gradients_layout, padded, values_layout
from grpc_ps.protos import job_pb2

WIRE_DTYPES = ("float32", "bfloat16", "float16")
INDEX_BYTES = 4
SMALL_BLOCK = 4096
"""Elements up to which a block is sent whole: it saves next to nothing, and last layers and biases need every step."""

_TOPK = re.compile(r"topk:(\d{1,20}|\d{0,20}\.\d{1,20})", re.ASCII)


@dataclass(frozen=True, slots=True)
class WireForm:
    """What becomes of the elements of trainable float32 parameters; all others travel as they are.

    Attributes:
        dtype: the type of what is sent of them, one of `WIRE_DTYPES`.
        ratio: the part of each block's elements that is sent, the largest ones; None for all of them.
    """

    dtype: str = "float32"
    ratio: Fraction | None = None

    @property
    def lossy(self) -> bool:
        """Whether anything travels otherwise than it is."""
        return self.dtype != "float32" or self.ratio is not None

    def reduces(self, block: Block) -> bool:
        """Whether a block travels in this form."""
        return self.lossy and block.trainable and block.dtype == "float32"

    def count(self, size: int) -> int:
        """How many of a block's elements are sent: the ratio of them, rounded up, at least one; of a small one all."""
        if self.ratio is None or size <= SMALL_BLOCK:
            return size
        return max(1, -(-self.ratio.numerator * size // self.ratio.denominator))


def parse_compress(text: str, dtype: str = "float32") -> Fraction | None:
    """Returns the RATIO of "topk:RATIO", exactly as the decimal says; None for an empty text.

    Args:
        dtype: the type of what is sent, one of `WIRE_DTYPES`. Each element takes an index with it, so from some ratio
            on a push is no shorter than one of all elements.

    Raises:
        ValueError: the text has another form, or RATIO is not above 0 and below that limit.
    """
    if not text:
        return None
    found = _TOPK.fullmatch(text)
    ratio = Fraction(found[1]) if found else Fraction(0)
    limit = Fraction(ITEM_BYTES[dtype], ITEM_BYTES[dtype] + INDEX_BYTES)
    if not 0 < ratio < limit:
        rule = f"a decimal above 0 and below {limit} with push_dtype {dtype}: else pushes are not shorter"
        raise ValueError(f"must be topk:RATIO, {rule}")
    return ratio


def push_form(settings: job_pb2.Settings) -> WireForm:
    """The form of gradients on their way to the shards."""
    dtype = settings.push_dtype or "float32"
    return WireForm(dtype, parse_compress(settings.compress, dtype))


def pull_form(settings: job_pb2.Settings) -> WireForm:
    """The form of parameters that are released to a worker."""
    return WireForm(settings.pull_dtype or "float32")


def narrow_values(blocks: Iterable[Block], form: WireForm) -> Layout:
    """Lays out a release on the wire: as the image of values, with reduced blocks in the form's type."""
    return values_layout(_narrowed(block, form) for block in blocks)


def narrow_gradients(blocks: Iterable[Block], form: WireForm) -> Layout:
    """Lays out a push on the wire: as the image of a push, with reduced blocks in the form's type."""
    return gradients_layout(_narrowed(block, form) for block in blocks)


def residuals_layout(blocks: Iterable[Block], form: WireForm) -> Layout:
    """Lays out what a worker keeps back of its pushes: the reduced blocks, in float32."""
    return values_layout(block for block in blocks if form.reduces(block))


def _narrowed(block: Block, form: WireForm) -> Block:
    return replace(block, dtype=form.dtype) if form.reduces(block) else block


@dataclass(frozen=True, slots=True)
class Selection:
    """A block of the placement in a push of largest elements.

    Attributes:
        count: elements that are sent in the form's type; None where all of them are, as they are.
        indices: where their indices within the block begin in the image, uint32, each above the one before; there are
            none where all elements are sent.
        values: where the elements begin.
    """

    block: Block
    count: int | None
    indices: int
    values: int


@dataclass(frozen=True)
class SparseLayout:
    """Where the indices and the elements of each block begin in a push of largest elements.

    Blocks are those of the placement and not runs of them: what is sent must not depend on the number of shards.
    """

    selections: tuple[Selection, ...]
    total_bytes: int


def sparse_gradients(blocks: Iterable[Block], form: WireForm) -> SparseLayout:
    """Lays out a push of which only the largest elements are sent: for each block its indices, then its elements."""
    selections = []
    end = 0
    for block in (block for block in blocks if block.floating):
        if form.reduces(block):
            count = form.count(block.size)
            values = end + (padded(count * INDEX_BYTES) if count < block.size else 0)
            selections.append(Selection(block, count, end, values))
            end = values + padded(count * ITEM_BYTES[form.dtype])
        else:
            selections.append(Selection(block, None, end, end))
            end += padded(block.nbytes)
    return SparseLayout(tuple(selections), end)
