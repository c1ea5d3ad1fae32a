"""Rows of tables: where they are, what they begin with, and how tables are described."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.codec import from_proto, to_proto
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.rows import distinct, first_values, problem_of_ids, rows_on_shard, split_ids
from grpc_ps.client.shared.tables import TableSpec
from grpc_ps.protos import tensor_pb2
from grpc_ps.protos.job_pb2 import JobSpec
from grpc_ps.psserver.messages import specs_of


def table(name: str = "t", rows: int = 100, dim: int = 4, **rules: object) -> ParameterSpec:
    return ParameterSpec(name=name, shape=(rows, dim), dtype="float32", table=TableSpec(**rules))  # type: ignore[arg-type]


def splitmix(seed: int, name: str, element: int, spread: float) -> np.float32:
    """What protos/README.md says, number by number."""
    state = seed + int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    z = (state + (element + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    z ^= z >> 31
    return np.float32((z >> 40) / 2**23 - 1) * np.float32(spread)


@given(seed=st.integers(0, 2**64 - 1), row=st.integers(0, 2**40), dim=st.integers(1, 70))
def test_first_values_are_those_of_the_specification(seed: int, row: int, dim: int) -> None:
    spec = table("words", 2**41, dim, spread=0.3)
    (found,) = first_values(spec, seed, np.array([row]))
    assert found.tolist() == [splitmix(seed, "words", row * dim + column, 0.3) for column in range(dim)]


def test_first_values_depend_on_nothing_but_the_row() -> None:
    spec = table(rows=60_000, dim=3)
    whole = first_values(spec, 7, np.arange(60_000))
    some = np.array([59_999, 5, 40_000])
    assert np.array_equal(first_values(spec, 7, some), whole[some])
    assert np.abs(whole).max() < np.float32(0.05)
    assert np.abs(whole.mean()) < 1e-3
    assert whole.std() == pytest.approx(0.05 / 3**0.5, rel=0.01)
    assert not np.array_equal(first_values(spec, 8, some), whole[some])
    assert not np.array_equal(first_values(table("u", 60_000, 3), 7, some), whole[some])


@given(rows=st.integers(1, 200), shards=st.integers(1, 7))
def test_every_row_is_on_one_shard(rows: int, shards: int) -> None:
    ids = np.arange(rows)
    places = split_ids(ids, shards)
    for shard, place_of in enumerate(places):
        mine = ids[place_of]
        assert len(mine) == rows_on_shard(rows, shard, shards)
        assert problem_of_ids(mine, rows, shard, shards) == ""
    assert sorted(np.concatenate([ids[each] for each in places])) == list(range(rows))


@given(st.lists(st.lists(st.integers(-3, 30), min_size=2, max_size=2)))
def test_distinct_ids_are_numpys(ids: list[list[int]]) -> None:
    array = np.array(ids, np.int32)
    assert distinct(array).tolist() == np.unique(array).tolist()
    assert distinct(array).dtype == np.int64


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([3, 1], "ids must rise, and be from 0 to 9"),
        ([1, 1], "ids must rise, and be from 0 to 9"),
        ([-1, 1], "ids must rise, and be from 0 to 9"),
        ([1, 11], "ids must rise, and be from 0 to 9"),
        ([1, 2], "ids must be 1 modulo 2, the number of shards"),
    ],
)
def test_ids_that_cannot_be(ids: list[int], said: str) -> None:
    assert problem_of_ids(np.array(ids), 10, 1, 2) == said


def test_tables_have_no_blocks_and_are_in_the_fingerprint() -> None:
    dense = ParameterSpec(name="w", shape=(5,), dtype="float32")
    with_table = place([dense, table()], 2)
    assert [[block.parameter for block in blocks] for blocks in with_table.shards] == [["w"], []]
    marks = {
        place([dense, *more], 2).fingerprint
        for more in ([], [table()], [table(lazy=True)], [table(spread=0.1)], [table(push_rows=9)], [table(rows=101)])
    }
    assert len(marks) == 6


def test_a_table_goes_through_its_message() -> None:
    for spec in (table(), table("words", 2**40, 16, spread=0.0, lazy=True, push_rows=5, capacity=77)):
        assert from_proto(to_proto(spec)) == spec
    message = to_proto(table())
    message.table.push_rows = 0
    with pytest.raises(ValueError, match="table t: push_rows 0 must be from 1 to 1048576"):
        from_proto(message)
    message = to_proto(table())
    message.dtype = tensor_pb2.DTYPE_FLOAT64
    with pytest.raises(ValueError, match=r"table t: must be trainable, float32 and \[rows, dim\], not float64"):
        from_proto(message)


@pytest.mark.parametrize(
    "rules", [{"spread": -0.1}, {"spread": float("inf")}, {"push_rows": 2**20 + 1}, {"capacity": 5}, {"capacity": -1}]
)
def test_rules_that_cannot_be(rules: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(rules))):
        TableSpec(**rules)  # type: ignore[arg-type]


def test_a_lazy_table_of_which_one_push_fills_the_memory_is_refused() -> None:
    def job(**rules: Any) -> JobSpec:
        return JobSpec(parameters=[to_proto(table("t", 2**40, 2**24, lazy=True, **rules))])

    assert specs_of(job(push_rows=1024))[0].shape == (2**40, 2**24)
    with pytest.raises(UsageError, match=f"the model has {1025 * 2**26} bytes; a job may have at most {2**36}"):
        specs_of(job(push_rows=1025))
