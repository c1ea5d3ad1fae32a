"""The job as messages have it: which parameter each sum of squares is of."""

from __future__ import annotations

import pytest

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.client.shared.tables import TableSpec
from grpc_ps.psserver.job_description import JobDescription
from grpc_ps.psserver.lead.joining import Definition
from grpc_ps.psserver.messages import signatures

SPECS = [
    ParameterSpec(name="z", shape=(3,), dtype="float32"),
    ParameterSpec(name="counts", shape=(2,), dtype="int32", trainable=False),
    ParameterSpec(name="a", shape=(5,), dtype="float32"),
    ParameterSpec(name="rows", shape=(100, 4), dtype="float32", table=TableSpec()),
]


def description(shard_count: int) -> JobDescription:
    return JobDescription(
        Definition(model="m", settings={}, parameters=signatures(SPECS), opened={}, opener=None), shard_count
    )


def test_sums_are_of_trainable_blocks_then_two_of_each_table() -> None:
    """By their numbers in order of the names: a 0, counts 1, rows 2, z 3."""
    found = description(1).squares(0, [1.0, 2.0, 3.0, 4.0])
    assert found == ((0, 1.0), (3, 2.0), (2, 3.0), (2, 4.0))


@pytest.mark.parametrize("sums", [[], [1.0, 2.0, 3.0], [1.0] * 5])
def test_more_or_less_sums_than_blocks_are_refused(sums: list[float]) -> None:
    with pytest.raises(InvalidPush, match=f"^shard 0 reports {len(sums)} sums of squares, it has 4 blocks$"):
        description(1).squares(0, sums)


def test_each_shard_has_its_own_blocks_and_all_together_the_trainable_ones() -> None:
    described = description(2)
    owners = [owner for shard in range(2) for owner in described.owners[shard] if owner != 2]
    assert sorted(owners) == [0, 3]
    assert described.squares(1, [0.5] * len(described.owners[1])) == tuple((it, 0.5) for it in described.owners[1])
