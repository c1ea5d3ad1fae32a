"""Pushes on their way in: visible when whole, refused when malformed, without a trace."""

from __future__ import annotations

import numpy as np
import pytest

from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.codec import ChunkView, word_sum
from grpc_ps.client.shared.errors import Corrupt, InvalidPush
from grpc_ps.client.shared.image import block_views, chunk_spans, gradients_layout
from grpc_ps.protos.job_pb2 import Identity
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.staging import Part, Staging, key_of

SPECS = [
    ParameterSpec(name="a", shape=(40,), dtype="float32"),
    ParameterSpec(name="b", shape=(3,), dtype="float64"),
    ParameterSpec(name="n", shape=(5,), dtype="int32", trainable=False),
]
CHUNK = 1 << 20
LAYOUT = gradients_layout(place(SPECS, 1).shards[0])


def header(worker: int = 0, sequence: int = 1, incarnation: int = 1) -> PushHeader:
    return PushHeader(
        id=Identity(run=1, generation=1, worker=worker, incarnation=incarnation),
        sequence=sequence,
        kind=PushHeader.KIND_GRADIENTS,
        examples=1,
        total_bytes=LAYOUT.total_bytes,
    )


def image(a: float = 1.0, b: float = 2.0) -> np.ndarray:
    buffer = np.zeros(LAYOUT.total_bytes, np.uint8)
    views = block_views(LAYOUT, buffer)
    views[0][...] = a
    views[1][...] = b
    return buffer


def chunk(offset: int, data: bytes, total: int | None = None) -> ChunkView:
    return ChunkView(offset, word_sum(data) if total is None else total, memoryview(data))


def fill(part: Part, buffer: np.ndarray, chunk_bytes: int = 64) -> None:
    for offset, nbytes in chunk_spans(LAYOUT, chunk_bytes):
        part.write(chunk(offset, buffer[offset : offset + nbytes].tobytes()))


def begin(staging: Staging, **ids: int) -> Part:
    part = staging.begin(header(**ids), LAYOUT)
    assert part is not None
    return part


def test_the_image_has_the_floating_blocks_alone() -> None:
    assert [block.parameter for block in LAYOUT.blocks] == ["a", "b"]
    assert LAYOUT.total_bytes == 192 + 64


@pytest.mark.parametrize("chunk_bytes", [64, 128, 1 << 20])
def test_a_part_is_visible_only_when_whole(chunk_bytes: int) -> None:
    staging = Staging(CHUNK)
    part = begin(staging)
    fill(part, image(), chunk_bytes)
    assert staging.whole(key_of(part.header)) is None
    report = part.finish()
    assert report.non_finite == ""
    assert staging.whole(key_of(part.header)) is part
    assert [block.tolist() for block in part.image.blocks] == [[1.0] * 40, [2.0] * 3]
    assert all(block.ctypes.data % 64 == 0 for block in part.image.blocks)


@pytest.mark.parametrize(
    ("offset", "data", "error", "says"),
    [
        (64, b"\0" * 64, InvalidPush, "a chunk of 64 bytes at 64, expected one at 0"),
        (0, b"", InvalidPush, "a chunk of 0 bytes"),
        (0, b"\0" * 320, InvalidPush, "bytes up to 320, the image has 256"),
    ],
)
def test_a_gap_an_empty_or_an_oversized_chunk_is_refused(
    offset: int, data: bytes, error: type[Exception], says: str
) -> None:
    part = begin(Staging(CHUNK))
    with pytest.raises(error, match=says):
        part.write(chunk(offset, data))


@pytest.mark.parametrize(("size", "limit"), [(65, 1 << 20), (128, 64)])
def test_a_chunk_of_a_size_that_is_not_allowed_is_refused(size: int, limit: int) -> None:
    part = Staging(limit).begin(header(), LAYOUT)
    assert part is not None
    with pytest.raises(InvalidPush, match=f"a chunk of {size} bytes must be a multiple of 64, at most {limit}"):
        part.write(ChunkView(0, 0, memoryview(bytes(size))))


def test_a_repeated_chunk_is_refused() -> None:
    part = begin(Staging(CHUNK))
    part.write(chunk(0, b"\0" * 64))
    with pytest.raises(InvalidPush, match="at 0, expected one at 64"):
        part.write(chunk(0, b"\0" * 64))


def test_a_chunk_whose_sum_is_wrong_is_refused() -> None:
    part = begin(Staging(CHUNK))
    with pytest.raises(Corrupt, match="the chunk at 0"):
        part.write(chunk(0, b"\1" * 64, total=5))


def test_a_push_that_ends_early_is_refused() -> None:
    part = begin(Staging(CHUNK))
    part.write(chunk(0, b"\0" * 64))
    with pytest.raises(InvalidPush, match="ended after 64 of 256 bytes"):
        part.finish()


def test_a_declared_length_that_is_not_the_images_is_refused_before_memory_is_taken() -> None:
    staging = Staging(CHUNK)
    wrong = header()
    wrong.total_bytes = 1 << 60
    with pytest.raises(InvalidPush, match="the image has 256"):
        staging.begin(wrong, LAYOUT)
    assert staging.bytes() == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_named(value: float) -> None:
    part = begin(Staging(CHUNK))
    fill(part, image(b=value))
    assert part.finish().non_finite == "b"


def test_large_finite_numbers_whose_squares_overflow_are_finite() -> None:
    part = begin(Staging(CHUNK))
    fill(part, image(a=3e38))
    assert part.finish().non_finite == ""


def test_an_abandoned_push_leaves_no_memory() -> None:
    staging = Staging(CHUNK)
    part = begin(staging)
    part.write(chunk(0, b"\0" * 64))
    assert staging.bytes() > 0
    staging.abandon(0, 1)
    assert staging.bytes() == 0


def test_a_whole_push_survives_its_stream_and_is_not_taken_twice() -> None:
    staging = Staging(CHUNK)
    part = begin(staging)
    fill(part, image())
    part.finish()
    staging.abandon(0, 1)
    assert staging.held(0, 1) == 1
    assert staging.begin(header(), LAYOUT) is None
    with pytest.raises(InvalidPush, match="not decided yet"):
        staging.begin(header(sequence=2), LAYOUT)


def test_dismissal_keeps_only_the_push_that_is_in_a_round() -> None:
    staging = Staging(CHUNK)
    part = begin(staging)
    fill(part, image())
    part.finish()
    staging.drop(0, 1, keep=1)
    assert staging.held(0, 1) == 1
    staging.drop(0, 1)
    assert staging.held(0, 1) == 0


def test_memory_is_reused_from_push_to_push() -> None:
    staging = Staging(CHUNK)
    first = begin(staging)
    fill(first, image())
    first.finish()
    before = first.image.blocks[0].ctypes.data
    staging.forget(key_of(first.header))
    assert begin(staging, sequence=2).image.blocks[0].ctypes.data == before


def test_a_push_that_is_decided_is_not_taken_again_over_a_new_stream() -> None:
    staging = Staging(CHUNK)
    part = begin(staging)
    fill(part, image())
    part.finish()
    staging.forget(key_of(part.header))
    staging.abandon(0, 1)
    assert staging.held(0, 1) == 1
    assert staging.begin(header(), LAYOUT) is None
    assert staging.begin(header(sequence=2), LAYOUT) is not None


@pytest.mark.parametrize("sequence", [0, 2, 1000])
def test_numbers_rise_by_one(sequence: int) -> None:
    with pytest.raises(InvalidPush, match=f"push {sequence} of worker 0: expected number 1"):
        Staging(CHUNK).begin(header(sequence=sequence), LAYOUT)


def test_a_new_life_begins_from_one() -> None:
    staging = Staging(CHUNK)
    staging.forget((0, 1, 9))
    assert staging.held(0, 2) == 0
    assert staging.begin(header(incarnation=2), LAYOUT) is not None
