"""A range of an image in 16 bits: whatever the range, its bytes are those of the whole, gaps zero."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grpc_ps.client.shared.blocks import Block
from grpc_ps.client.shared.image import ALIGNMENT, values_layout
from grpc_ps.client.shared.narrow_image import block_spans, narrow_range
from grpc_ps.client.shared.wire_form import WireForm, narrow_values

KINDS = st.sampled_from([("float32", True), ("float32", False), ("float64", True), ("bool", False)])


@given(st.lists(st.tuples(st.integers(1, 150), KINDS), min_size=1, max_size=5), st.data())
def test_any_range_is_that_of_the_whole_image(sizes: list[tuple[int, tuple[str, bool]]], data: st.DataObject) -> None:
    form = WireForm("bfloat16")
    blocks = [Block(f"p{n}", 0, size, dtype, trained) for n, (size, (dtype, trained)) in enumerate(sizes)]
    layout, values = narrow_values(blocks, form), values_layout(blocks)
    rng = np.random.default_rng(0)
    whole = np.zeros(layout.total_bytes, np.uint8)
    sources = []
    for block, offset in zip(values.blocks, layout.offsets, strict=True):
        plain = rng.normal(size=block.size).astype(block.dtype)
        reduced = plain.astype(ml_dtypes.bfloat16) if form.reduces(block) else plain
        sources.append(plain if form.reduces(block) else plain.view(np.uint8))
        whole[offset : offset + reduced.nbytes] = reduced.view(np.uint8)
    chunks = layout.total_bytes // ALIGNMENT
    first = data.draw(st.integers(0, chunks - 1))
    count = data.draw(st.integers(1, chunks - first))
    out = np.full(count * ALIGNMENT, 0xFF, np.uint8)
    narrow_range(layout, first * ALIGNMENT, out, sources)
    assert out.tobytes() == whole[first * ALIGNMENT : (first + count) * ALIGNMENT].tobytes()
    spans = list(block_spans(layout, first * ALIGNMENT, count * ALIGNMENT))
    assert all(0 <= begin < end <= layout.blocks[index].nbytes for index, begin, end in spans)
