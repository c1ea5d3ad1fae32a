"""What a worker keeps back, chunk after chunk: the whole image, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from residuals_bed import chunk

from grpc_ps.client.shared.codec import ChunkView
from grpc_ps.client.shared.errors import Corrupt, InvalidPush
from grpc_ps.psserver.residual_part import ResidualPart


def test_chunks_in_order_are_the_image() -> None:
    whole: list[bool] = []
    part = ResidualPart(0, 128, np.zeros(128, np.uint8), lambda: whole.append(True))
    part.write(chunk(0, 1.0))
    part.write(chunk(64, 2.0))
    assert whole == []
    part.finish()
    assert whole == [True]
    assert np.array_equal(part.buffer.view(np.float32), np.repeat(np.float32([1, 2]), 16))


def test_what_is_not_the_image_is_refused() -> None:
    whole: list[bool] = []
    part = ResidualPart(0, 192, np.zeros(192, np.uint8), lambda: whole.append(True))
    with pytest.raises(InvalidPush, match=r"^what worker 0 keeps back: a chunk of 64 bytes at 64, expected one at 0$"):
        part.write(chunk(64, 1.0))
    with pytest.raises(InvalidPush, match="infinite numbers or NaN"):
        part.write(chunk(0, np.nan))
    with pytest.raises(Corrupt, match="the sum of the chunk at 0 is wrong"):
        part.write(ChunkView(0, 1, chunk(0, 1.0).data))
    part.write(chunk(0, 1.0))
    with pytest.raises(InvalidPush, match="at 0, expected one at 64"):
        part.write(chunk(0, 1.0))
    with pytest.raises(InvalidPush, match="ended after 64 of 192 bytes"):
        part.finish()
    assert whole == []


def test_nothing_comes_behind_the_image() -> None:
    part = ResidualPart(3, 64, np.zeros(64, np.uint8), lambda: None)
    part.write(chunk(0, 1.0))
    with pytest.raises(InvalidPush, match="at 64, expected one at 64"):
        part.write(chunk(64, 1.0))
