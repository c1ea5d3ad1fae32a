"""Images: what is gathered from one set of buffers is scattered into another unchanged, whatever the chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_ps.client.shared.blocks import ITEM_BYTES, Block, ParameterSpec, cut, place
from grpc_ps.client.shared.image import (
    ALIGNMENT,
    Layout,
    aligned_buffer,
    block_views,
    chunk_spans,
    gather,
    gradients_layout,
    numpy_dtype,
    scatter,
    values_layout,
)

SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (4, 2), (2, 0, 3), (3, 1, 5))


def block(name: str, count: int, dtype: str = "float32") -> Block:
    return Block(name, 0, count, dtype, True)


blocks = st.lists(
    st.builds(
        Block,
        st.just("w"),
        st.just(0),
        st.integers(1, 200),
        st.sampled_from(["float32", "bool", "bfloat16"]),
        st.just(True),
    ),
    max_size=6,
)


def filled(layout: Layout, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, b.nbytes, dtype=np.uint8) for b in layout.blocks]


def test_layout_begins_each_block_at_a_multiple_of_64() -> None:
    layout = values_layout([block("a", 1, "bool"), block("b", 16), block("c", 17), block("d", 3, "int64")])
    assert layout.offsets == (0, 64, 128, 256)
    assert layout.total_bytes == 320


def test_a_push_has_the_floating_blocks_only() -> None:
    image = [block(dtype, 1, dtype) for dtype in ITEM_BYTES]
    assert [b.dtype for b in gradients_layout(image).blocks] == ["float32", "float64", "float16", "bfloat16"]
    assert values_layout(image).blocks == tuple(image)


def test_a_shard_without_blocks_has_an_empty_image() -> None:
    layout = values_layout([])
    assert layout == Layout((), (), 0)
    assert chunk_spans(layout, 1024) == ()
    assert gather(layout, 0, 0, []) == []
    scatter(layout, 0, b"", [])


def test_aligned_buffer_is_aligned_zero_and_writable() -> None:
    for nbytes in (1, 64, 1000, 1 << 20):
        buffer = aligned_buffer(nbytes)
        assert (buffer.nbytes, buffer.ctypes.data % ALIGNMENT, buffer.flags.writeable) == (nbytes, 0, True)
        assert not buffer.any()
    assert aligned_buffer(0).size == 0


def test_block_views_share_the_image() -> None:
    layout = values_layout([block("a", 3), block("b", 2, "bfloat16")])
    image = aligned_buffer(layout.total_bytes)
    a, b = block_views(layout, image)
    a[:] = [1, 2, 3]
    b[:] = [1.5, -2]
    assert image[:12].tobytes() == np.array([1, 2, 3], "<f4").tobytes()
    assert image[64:68].tobytes() == bytes.fromhex("c03f00c0")


def test_chunk_spans_cover_the_image_in_order() -> None:
    layout = values_layout([block("a", 100)])
    assert chunk_spans(layout, 1 << 20) == ((0, 448),)
    assert chunk_spans(layout, 200) == ((0, 192), (192, 192), (384, 64))
    with pytest.raises(ValueError, match="at least 64 bytes, not 63"):
        chunk_spans(layout, 63)


@given(blocks, st.integers(1, 20).map(lambda n: n * ALIGNMENT))
def test_gathered_chunks_are_the_image(parts: list[Block], chunk_bytes: int) -> None:
    layout = values_layout(parts)
    buffers = filled(layout, 1)
    image = aligned_buffer(layout.total_bytes)
    for view, buffer in zip(block_views(layout, image), buffers, strict=True):
        view.view(np.uint8)[:] = buffer
    views = [memoryview(buffer) for buffer in buffers]
    chunks = [b"".join(gather(layout, *span, views)) for span in chunk_spans(layout, chunk_bytes)]
    assert b"".join(chunks) == image.tobytes()


@given(blocks, st.integers(1, 20).map(lambda n: n * ALIGNMENT))
def test_scatter_undoes_gather(parts: list[Block], chunk_bytes: int) -> None:
    layout = values_layout(parts)
    buffers = filled(layout, 2)
    restored = [np.full(b.nbytes, 7, np.uint8) for b in parts]
    for offset, nbytes in chunk_spans(layout, chunk_bytes):
        data = b"".join(gather(layout, offset, nbytes, [memoryview(b) for b in buffers]))
        scatter(layout, offset, memoryview(data), restored)
    assert all(map(np.array_equal, restored, buffers))


def test_scatter_refuses_what_lies_outside() -> None:
    layout = values_layout([block("a", 3)])
    with pytest.raises(ValueError, match="bytes 64 to 128 are outside an image of 64"):
        scatter(layout, 64, bytes(64), [np.zeros(12, np.uint8)])


@pytest.mark.parametrize("dtype", ITEM_BYTES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_b17_types_and_shapes_keep_their_bytes(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    value = (rng.integers(0, 2, shape) if dtype == "bool" else rng.integers(-9, 9, shape)).astype(numpy_dtype(dtype))
    spec = ParameterSpec(name="w", shape=shape, dtype=dtype)
    assert spec.nbytes == value.nbytes
    layout = values_layout(cut(spec))
    sent = [memoryview(value.reshape(-1).view(np.uint8))] if value.size else []
    image = b"".join(gather(layout, 0, layout.total_bytes, sent))
    received = np.zeros(shape, numpy_dtype(dtype))
    scatter(layout, 0, memoryview(image), [received.reshape(-1).view(np.uint8)] if value.size else [])
    assert (received.dtype, received.shape, received.tobytes()) == (value.dtype, value.shape, value.tobytes())


def test_b17_image_of_all_types_survives_two_shards() -> None:
    specs = [
        ParameterSpec(name=f"{dtype}{shape}", shape=shape, dtype=dtype) for dtype in ITEM_BYTES for shape in SHAPES
    ]
    rng = np.random.default_rng(5)
    values = {p.name: rng.integers(0, 2, p.nbytes, dtype=np.uint8) for p in specs}
    received = {p.name: np.zeros(p.nbytes, np.uint8) for p in specs}
    for shard in place(specs, 2).shards:
        layout = values_layout(shard)
        image = b"".join(gather(layout, 0, layout.total_bytes, [memoryview(values[b.parameter]) for b in shard]))
        scatter(layout, 0, memoryview(image), [received[b.parameter] for b in shard])
    assert all(np.array_equal(received[name], value) for name, value in values.items())
