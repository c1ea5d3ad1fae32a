"""Rounding to 16 bits and picking the largest elements: every result is compared with one worked out another way."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_ps.client.shared.rounding import are_indices, largest, narrow

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
bits = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40)


def floats(words: list[int]) -> np.ndarray:
    return np.array(words, np.uint32).view(np.float32)


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    out = np.zeros(len(values), dtype)
    narrow(values, out)
    return out


def nearest_even_bfloat16(word: int) -> int:
    """The upper half of the bits, one more where the lower half is above the middle, or at it and the upper is odd."""
    upper, lower = word >> 16, word & 0xFFFF
    return upper + (lower > 0x8000 or (lower == 0x8000 and upper & 1))


@given(bits)
def test_bfloat16_is_the_nearest_or_the_even_one(words: list[int]) -> None:
    got = rounded(floats(words), BFLOAT16).view(np.uint16)
    for word, found, value in zip(words, got, floats(words), strict=True):
        if math.isnan(value):
            assert math.isnan(found.view(BFLOAT16).astype(np.float32))
        else:
            assert int(found) == nearest_even_bfloat16(word)


def exact(value: np.floating) -> Fraction:
    return Fraction(float(value))


@given(bits)
def test_float16_is_the_nearest_and_never_infinite_for_a_finite_number(words: list[int]) -> None:
    values = floats(words)
    got = rounded(values, np.dtype(np.float16))
    for value, found in zip(values, got, strict=True):
        if not math.isfinite(value):
            assert np.float16(value).tobytes() == found.tobytes() or (math.isnan(value) and math.isnan(found))
        elif abs(value) >= 65504:
            assert float(found) == math.copysign(65504, value)
        else:
            others = [np.nextafter(found, np.float16(end)) for end in (-65504, 65504)]
            assert all(abs(exact(value) - exact(found)) <= abs(exact(value) - exact(other)) for other in others)


def test_ties_go_to_the_even_number() -> None:
    # 1 + 2**-8 lies between 1 and 1 + 2**-7; 1 + 3 * 2**-8 between 1 + 2**-7 and 1 + 2**-6.
    halves = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8], np.float32)
    assert rounded(halves, BFLOAT16).astype(float).tolist() == [1, 1 + 2**-6, -1]
    halves = np.array([1 + 2**-11, 1 + 3 * 2**-11], np.float32)
    assert rounded(halves, np.dtype(np.float16)).astype(float).tolist() == [1, 1 + 2**-9]


def test_float16_keeps_infinities_beside_what_it_limits() -> None:
    values = np.array([1e30, -70000, np.inf, -np.inf, np.nan, 65504, 1e-9], np.float32)
    got = rounded(values, np.dtype(np.float16)).astype(float)
    assert got[:4].tolist() == [65504, -65504, math.inf, -math.inf]
    assert math.isnan(got[4])
    assert got[5:].tolist() == [65504, 0]


@pytest.mark.parametrize("dtype", [BFLOAT16, np.dtype(np.float16)])
def test_rounding_says_nothing_whatever_the_callers_care_for(dtype: np.dtype) -> None:
    values = np.array([1e30, 3.4e38, np.inf, np.nan, 1e-9, 1e-42], np.float32)
    with np.errstate(all="raise"):
        rounded(values, dtype)


def test_float32_is_not_changed() -> None:
    values = np.array([1.1, np.inf, 3e38], np.float32)
    assert rounded(values, np.dtype(np.float32)).tobytes() == values.tobytes()


def by_sorting(values: np.ndarray, count: int) -> list[int]:
    order = sorted(range(len(values)), key=lambda at: (-abs(float(values[at])), at))
    return sorted(order[:count])


few = st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e-30, 3e38, math.inf]), min_size=1, max_size=30)


@given(few, st.data())
def test_the_largest_are_those_that_sorting_finds_and_of_equal_ones_the_first(
    numbers: list[float], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(numbers)))
    values = np.array(numbers, np.float32)
    before = values.copy()
    found = largest(values, count, np.empty(40, np.uint32))
    assert found.tolist() == by_sorting(values, count)
    assert values.tobytes() == before.tobytes()


def test_nan_is_among_the_largest() -> None:
    values = np.array([1, np.inf, np.nan, 5], np.float32)
    assert largest(values, 1, np.empty(4, np.uint32)).tolist() == [2]


@pytest.mark.parametrize(
    ("indices", "size", "valid"),
    [
        ([], 0, True),
        ([0], 1, True),
        ([0, 3, 4], 5, True),
        ([1], 1, False),
        ([0, 3, 5], 5, False),
        ([0, 2, 2], 5, False),
        ([3, 1], 5, False),
        ([2**32 - 1, 1], 5, False),
    ],
)
def test_indices_rise_and_lie_within(indices: list[int], size: int, valid: bool) -> None:
    assert are_indices(np.array(indices, np.uint32), size) is valid
