"""Means, limits and squares of gradients of rows."""

from __future__ import annotations

import math

import numpy as np

from grpc_ps.client.shared.rows import Rows
from grpc_ps.psserver.mean import average
from grpc_ps.psserver.row_gradients import average_rows, limit_rows, squares_of_rows


def gradient(seed: int, ids: list[int], dim: int = 5) -> Rows:
    return Rows(np.array(ids, np.int64), np.random.default_rng(seed).normal(size=(len(ids), dim)).astype(np.float32))


def dense(rows: Rows, count: int = 12) -> np.ndarray:
    whole = np.zeros((count, rows.values.shape[1]), np.float32)
    whole[rows.ids] = rows.values
    return whole


def test_the_mean_is_that_of_whole_tables() -> None:
    parts = [gradient(1, [0, 3, 7]), gradient(2, [3, 11]), gradient(3, []), gradient(4, [0, 3])]
    weights = [np.float32(w) for w in (0.4, 0.3, 0.1, 0.2)]
    whole = [[dense(part).reshape(-1)] for part in parts]
    mean = average_rows(parts, weights)
    average(whole, weights)
    assert mean.ids.tolist() == [0, 3, 7, 11]
    assert np.array_equal(dense(mean).reshape(-1), whole[0][0])


def test_one_push_alone_is_left_as_it_is() -> None:
    part = gradient(1, [2, 5])
    assert average_rows([part], [1.0]) is part


def test_limits() -> None:
    rows = Rows(np.array([1]), np.array([[3.0, -4.0, 0.5]], np.float32))
    limit_rows(rows, 2.0, 1.0)
    assert rows.values.tolist() == [[2.0, -2.0, 0.5]]
    limit_rows(rows, 0.0, 0.5)
    assert rows.values.tolist() == [[1.0, -1.0, 0.25]]


def test_squares_sum_up_to_the_same_however_rows_are_spread() -> None:
    rows = gradient(5, list(range(999)), dim=3)
    rows.values[::7] *= 1e-9
    rows.values[::11] *= 1e9
    whole = math.fsum(squares_of_rows(rows))
    assert whole == math.fsum(float(x) for x in np.square(rows.values.astype(np.float64)).sum(axis=1))
    for shards in (2, 3, 7):
        parts = [Rows(rows.ids[shard::shards], rows.values[shard::shards]) for shard in range(shards)]
        assert math.fsum(number for part in parts for number in squares_of_rows(part)) == whole


def test_squares_of_what_is_not_finite() -> None:
    rows = Rows(np.array([1]), np.array([[np.inf, 1.0]], np.float32))
    assert squares_of_rows(rows) == (math.inf, 0.0)
    assert squares_of_rows(Rows(np.array([], np.int64), np.empty((0, 2), np.float32))) == (0.0, 0.0)
