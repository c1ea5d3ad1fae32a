"""The weighted mean of a round."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from grpc_ps.psserver.mean import PIECE, average


def test_the_mean_is_weighted_by_examples() -> None:
    parts = [[np.array([2.0], np.float32)], [np.array([4.0], np.float32)]]
    average(parts, [10 / 12, 2 / 12])
    assert parts[0][0][0] == pytest.approx(28 / 12, rel=1e-6)


def test_a_weight_of_one_multiplies_nothing() -> None:
    block = np.array([3.0], np.float32)
    average([[block]], [1.0])
    assert block.tolist() == [3.0]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_every_floating_type_keeps_its_type(dtype: type) -> None:
    parts = [[np.array([1.0, 2.0], dtype)], [np.array([3.0, 6.0], dtype)]]
    average(parts, [0.5, 0.5])
    mean = parts[0][0]
    assert mean.dtype == dtype
    assert mean.tolist() == [2.0, 4.0]


def test_sixteen_bits_are_rounded_once() -> None:
    parts = [[np.array([value], np.float16)] for value in (2048, 1, 1, 2)]
    average(parts, [0.25] * 4)
    assert parts[0][0][0] == np.float16(2052 / 4)


def test_the_order_of_the_sum_is_the_order_given() -> None:
    values = [1e8, 1.0, -1e8]
    parts = [[np.array([value], np.float32)] for value in values]
    third = float(np.float32(1 / 3))
    expected = np.float32(0)
    for value in values:
        expected = np.float32(expected + np.float32(value) * np.float32(third))
    average(parts, [third] * 3)
    assert parts[0][0][0] == expected


def test_long_blocks_are_averaged_to_their_ends() -> None:
    parts = [[np.full(3 * PIECE + 7, value, np.float32)] for value in (1.0, 5.0)]
    average(parts, [0.5, 0.5])
    assert set(parts[0][0].tolist()) == {3.0}
