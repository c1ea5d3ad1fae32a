"""One push on its way in: taken chunk by chunk in order, whole or refused."""

from __future__ import annotations

import numpy as np
import pytest
from staged_pushes import CHUNK, LAYOUT, attached, begin, chunk, fill, image, whole

from grpc_ps.client.shared.codec import ChunkView
from grpc_ps.client.shared.errors import Corrupt, InvalidPush
from grpc_ps.psserver.staging import key_of


def test_the_image_has_the_floating_blocks_alone() -> None:
    assert [block.parameter for block in LAYOUT.blocks] == ["a", "b"]
    assert LAYOUT.total_bytes == 192 + 64


@pytest.mark.parametrize("chunk_bytes", [64, 128, 1 << 20])
def test_a_part_is_visible_only_when_whole(chunk_bytes: int) -> None:
    staging = attached()
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
    part = begin(attached())
    with pytest.raises(error, match=says):
        part.write(chunk(offset, data))


@pytest.mark.parametrize(("size", "limit"), [(65, 1 << 20), (128, 64)])
def test_a_chunk_of_a_size_that_is_not_allowed_is_refused(size: int, limit: int) -> None:
    part = begin(attached(limit))
    with pytest.raises(InvalidPush, match=f"a chunk of {size} bytes must be a multiple of 64, at most {limit}"):
        part.write(ChunkView(0, 0, memoryview(bytes(size))))


def test_a_repeated_chunk_is_refused() -> None:
    part = begin(attached())
    part.write(chunk(0, b"\0" * 64))
    with pytest.raises(InvalidPush, match="at 0, expected one at 64"):
        part.write(chunk(0, b"\0" * 64))


def test_a_chunk_whose_sum_is_wrong_is_refused() -> None:
    part = begin(attached())
    with pytest.raises(Corrupt, match="the chunk at 0"):
        part.write(chunk(0, b"\1" * 64, total=5))


def test_bytes_between_blocks_must_be_zero() -> None:
    buffer = image()
    buffer[192 + 3 * 8] = 1
    part = begin(attached())
    fill(part, buffer)
    with pytest.raises(InvalidPush, match="between two blocks must be zero"):
        part.finish()


def test_a_push_that_ends_early_is_refused() -> None:
    part = begin(attached())
    part.write(chunk(0, b"\0" * 64))
    with pytest.raises(InvalidPush, match="ended after 64 of 256 bytes"):
        part.finish()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_named(value: float) -> None:
    part = begin(attached())
    fill(part, image(b=value))
    assert part.finish().non_finite == "b"


def test_large_finite_numbers_whose_squares_overflow_are_finite() -> None:
    part = begin(attached())
    fill(part, image(a=3e38))
    assert part.finish().non_finite == ""


@pytest.mark.parametrize("clip", ["clip_norm", "global_clip_norm"])
@pytest.mark.parametrize("chunk_bytes", [64, CHUNK])
def test_a_whole_push_has_the_squares_of_its_trainable_blocks(clip: str, chunk_bytes: int) -> None:
    part = begin(attached(**{clip: 1.0}))
    fill(part, image(a=2.0, b=3.0), chunk_bytes)
    assert list(part.finish().squares) == [160.0, 27.0]


def test_a_place_squares_each_push_anew_in_memory_of_its_own() -> None:
    staging = attached(clip_norm=1.0)
    unfinished = begin(staging)
    unfinished.write(chunk(0, image(a=7.0)[:64].tobytes()))
    staging.forget((0, 1, 1))
    scratch = unfinished.image.squares._scratch  # type: ignore[union-attr]
    for sequence, value in ((2, 2.0), (3, 4.0)):
        part = begin(staging, sequence=sequence)
        assert part.image.squares._scratch is scratch  # type: ignore[union-attr]
        fill(part, image(a=value, b=3.0))
        assert list(part.finish().squares) == [40 * value**2, 27.0]
        staging.forget((0, 1, sequence))


def test_without_clipping_by_a_norm_nothing_is_squared() -> None:
    assert list(whole(attached(clip_value=1.0)).finish().squares) == []
