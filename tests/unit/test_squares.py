"""Sums of squares: one a block, in float64, the same bits however the image filled."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from updated_shards import image_of, plan_of

from grpc_ps.client.shared.blocks import Block, ParameterSpec, cut
from grpc_ps.client.shared.image import aligned_buffer, chunk_spans
from grpc_ps.psserver.squares import PIECE, Squares, squares, trainable_spans

SPECS = [
    ParameterSpec(name="a", shape=(300_001,), dtype="float32"),
    ParameterSpec(name="frozen", shape=(10,), dtype="float32", trainable=False),
    ParameterSpec(name="h", shape=(1000,), dtype="float16"),
    ParameterSpec(name="n", shape=(5,), dtype="int64", trainable=False),
    ParameterSpec(name="z", shape=(3,), dtype="float64"),
]
RNG = np.random.default_rng(4)
ARRAYS = {spec.name: (RNG.normal(size=spec.shape) * 3).astype(spec.dtype) for spec in SPECS}


def test_spans_are_where_the_layout_has_the_blocks() -> None:
    plan = plan_of(SPECS, clip_norm=1.0)
    image = image_of(plan.gradients, ARRAYS)
    blocks = [block for spec in SPECS if spec.trainable for block in cut(spec)]
    assert len(plan.squared) == len(blocks) > len(plan.gradients.blocks)
    for span, block in zip(plan.squared, blocks, strict=True):
        expected = np.ravel(ARRAYS[block.parameter])[block.start : block.stop]
        assert image.buffer[span.start : span.stop].tobytes() == expected.tobytes()


def test_the_sums_are_those_of_exact_arithmetic() -> None:
    plan = plan_of(SPECS, global_clip_norm=1.0)
    image = image_of(plan.gradients, ARRAYS)
    found = squares(plan.squared, image.buffer)
    for span, total in zip(plan.squared, found, strict=True):
        elements = image.buffer[span.start : span.stop].view(span.dtype).astype(np.float64)
        assert total == pytest.approx(math.fsum(elements * elements), rel=1e-14)


def test_a_job_that_clips_no_norm_has_nothing_to_square() -> None:
    assert plan_of(SPECS, clip_value=1.0).squared == ()


@pytest.mark.parametrize("chunk_bytes", [64, 1024, 1 << 20])
def test_the_chunks_change_no_bit(chunk_bytes: int) -> None:
    plan = plan_of(SPECS, clip_norm=1.0)
    source = image_of(plan.gradients, ARRAYS).buffer
    target = aligned_buffer(len(source))
    running = Squares(plan.squared, target)
    for offset, nbytes in chunk_spans(plan.gradients, chunk_bytes):
        target[offset : offset + nbytes] = source[offset : offset + nbytes]
        running.advance(offset + nbytes)
    assert running.sums == squares(plan.squared, source)


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_the_neighbours_change_no_bit(shards: int) -> None:
    def by_block(count: int) -> dict[tuple[str, int], float]:
        found = {}
        for shard in range(count):
            plan = plan_of(SPECS, shard, count, clip_norm=1.0)
            sums = squares(plan.squared, image_of(plan.gradients, ARRAYS).buffer)
            blocks = [block for block in plan.placement.shards[shard] if block.trainable and block.floating]
            found.update({(block.parameter, block.start): total for block, total in zip(blocks, sums, strict=True)})
        return found

    assert by_block(shards) == by_block(1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("size", [1, PIECE, PIECE + 1])
def test_every_floating_type_is_squared_in_float64(dtype: str, size: int) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    values = np.full(size, 300.0, kind)
    (span,) = spans = trainable_spans([Block("w", 0, size, dtype, True)])
    buffer = aligned_buffer(-(-span.stop // 64) * 64)
    buffer[: span.stop] = values.view(np.uint8)
    assert squares(spans, buffer) == [size * 90_000.0]


def test_what_overflows_float32_is_finite_and_what_overflows_float64_is_infinite() -> None:
    spans = trainable_spans([Block("a", 0, 2, "float32", True), Block("b", 0, 2, "float64", True)])
    buffer = aligned_buffer(128)
    buffer[:8].view(np.float32)[...] = 3e38
    buffer[64:80].view(np.float64)[...] = 1e200
    small, large = squares(spans, buffer)
    assert small == pytest.approx(2 * 9e76, rel=1e-6)
    assert large == math.inf
