"""Where the time goes, made of counts: milliseconds that add up to what the worker measured."""

from __future__ import annotations

from typing import Any

import pytest
from fake_control import status

from grpc_ps.client.status import ClusterStatus, cluster_status
from grpc_ps.client.time_shares import ShardShares, StepShares, shares
from grpc_ps.protos import control_pb2 as wire
from grpc_ps.protos.coordination_pb2 import ShardTimes
from grpc_ps.protos.parameter_server_pb2 import WorkerTimes

SECONDS = {"input": 0.1, "compute": 1.0, "encode": 0.2, "answer": 1.5, "receive": 0.5}


def worker(pushes: int = 101, incarnation: int = 3, held: float = 0.5, **times: Any) -> wire.WorkerStatus:
    return wire.WorkerStatus(
        worker=1,
        incarnation=incarnation,
        applied=pushes - 1,
        late=1,
        held_seconds=held,
        times=WorkerTimes(**{"steps": 100, **SECONDS, **times}),
    )


def shard(number: int, **times: Any) -> wire.ShardStatus:
    told = {"pushes": 200, "stage": 0.2, "updates": 100, "apply": 0.3, "releases": 50, "encode": 0.1, **times}
    return wire.ShardStatus(shard=number, times=ShardTimes(**told))


def reading(*workers: wire.WorkerStatus, shards: tuple[wire.ShardStatus, ...] = (shard(0),)) -> ClusterStatus:
    return cluster_status(status(workers=workers, shards=shards))


def approximately(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-9)


def test_a_step_is_divided_into_what_everybody_did_for_it() -> None:
    found = shares(reading(worker()))
    # 0.2 s of 200 pushes, 0.3 of 100 updates, 0.1 of 50 releases.
    assert vars_of(found.shards[0]) == approximately({"stage": 1.0, "apply": 3.0, "encode": 2.0})
    # 20 ms an exchange, of which 5 (0.5 s of 100 pushes, the first left out) in wait and 6 on the shard.
    step = {"input": 1.0, "compute": 10.0, "encode": 2.0, "wire": 9.0, "shard": 6.0, "wait": 5.0}
    assert vars_of(found.workers[1]) == approximately(step)


def vars_of(row: StepShares | ShardShares) -> dict[str, float]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def test_the_slowest_shard_counts() -> None:
    found = shares(reading(worker(), shards=(shard(0), shard(1, apply=0.5), shard(2, stage=0.0))))
    assert found.workers[1].shard == approximately(8.0)
    assert found.workers[1].wire == approximately(7.0)
    assert [found.shards[number].apply for number in range(3)] == approximately([3.0, 5.0, 3.0])


@pytest.mark.parametrize(
    ("held", "apply", "wire_ms", "shard_ms", "wait_ms"),
    [(9.0, 0.3, 0.0, 0.0, 20.0), (1.8, 0.3, 0.0, 2.0, 18.0), (0.5, 9.0, 0.0, 15.0, 5.0)],
)
def test_means_of_others_never_exceed_what_the_worker_measured(
    held: float, apply: float, wire_ms: float, shard_ms: float, wait_ms: float
) -> None:
    step = shares(reading(worker(held=held), shards=(shard(0, apply=apply),))).workers[1]
    assert (step.wire, step.shard, step.wait) == approximately((wire_ms, shard_ms, wait_ms))


def test_who_has_told_nothing_is_left_out() -> None:
    silent = wire.WorkerStatus(worker=2, incarnation=4)
    found = shares(reading(silent, worker(steps=0), shards=(wire.ShardStatus(shard=0), shard(1, pushes=0))))
    assert (found.workers, found.shards) == ({}, {})


def test_only_what_came_since_an_earlier_reading() -> None:
    before = reading(worker())
    faster = {name: seconds + 0.001 for name, seconds in SECONDS.items()}
    later = worker(pushes=111, held=0.505, steps=110, **faster)
    now = reading(later, shards=(shard(0, pushes=210, stage=0.201, updates=110, apply=0.301),))
    found = shares(now, before)
    assert vars_of(found.shards[0]) == approximately({"stage": 0.1, "apply": 0.1, "encode": 0.0})
    # An exchange of 0.2 ms; all of it, and more, is explained by the wait of 0.5.
    step = {"input": 0.1, "compute": 0.1, "encode": 0.1, "wire": 0.0, "shard": 0.0, "wait": 0.2}
    assert vars_of(found.workers[1]) == approximately(step)


def test_where_nothing_came_since_all_is_shown() -> None:
    now = reading(worker())
    assert shares(now, reading(worker())) == shares(now)


def test_another_life_of_a_worker_is_not_compared_with_the_one_before() -> None:
    before = reading(worker(steps=1000, compute=99.0))
    assert shares(reading(worker(incarnation=4)), before).workers[1].compute == approximately(10.0)


def test_a_shard_that_began_anew_is_not_compared_with_the_process_before() -> None:
    before = reading(shards=(shard(0, stage=7.0),))
    assert shares(reading(worker()), before) == shares(reading(worker()))
