"""Bad numbers: a push with one is refused whole on all shards, and a result with one ends the job (fault B91)."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from history import History
from light_worker import Outcome, gathered, run_worker, run_workers
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.errors import JobFailed
from grpc_ps.psserver.lead.log import Answer, Stop

SPECS = [ParameterSpec(name=name, shape=(50,), dtype="float32") for name in ("first", "second")]
MAX = float(np.finfo(np.float32).max)
MODES = {
    "async": {"mode": "async"},
    "sync": {"mode": "sync", "workers": 2},
    "backup": {"mode": "sync", "workers": 2, "backup": 1},
}
WORKERS = {"async": 2, "sync": 2, "backup": 3}
BAD = 1


def ones(value: float = 1.0) -> dict[str, np.ndarray]:
    return {spec.name: np.full(spec.shape, value, np.float32) for spec in SPECS}


def spoiled(number: float) -> dict[str, np.ndarray]:
    """One bad number, in the second variable."""
    gradient = ones()
    gradient["second"][37] = number
    return gradient


def test_the_second_variable_is_on_shard_1() -> None:
    """What the tests below are about."""
    first, second = place(SPECS, 2).shards
    assert [{block.parameter for block in blocks} for blocks in (first, second)] == [{"first"}, {"second"}]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mode", MODES)
def test_b91_a_bad_push_is_refused_whole_and_changes_nothing(mode: str, number: float) -> None:
    """Fault B91: no value, slot or step of either shard changes; the worker is told the variable, and goes on."""
    presets = {**MODES[mode], "optimizer": "momentum", "momentum": 0.5, "learning_rate": 0.25, "steps": 12}
    bad = iter([True, False, True, True, False])
    refused_once = threading.Event()
    computed: list[int] = []

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if worker != BAD:
            # Else the others may reach the last step before the bad worker has pushed at all.
            assert refused_once.wait(30)
            return ones(), 1
        computed.append(batch)
        if len(computed) == 2:
            refused_once.set()
        return (spoiled(number) if next(bad, False) else ones()), 1

    count = WORKERS[mode]
    with LocalCluster(2, presets=presets) as cluster:
        compute = gathered(cluster, count, gradient)
        done = run_workers(count, lambda index: run_worker(cluster.addresses, SPECS, compute, index=index))
        assert cluster.wait_ended() == [None, None]
    history = cluster.history
    check_retired(history, done, computed)
    check_updates(history, mode)
    expected, velocity = np.float32(0), np.float32(0)
    for _ in range(12):
        velocity = np.float32(0.5) * velocity + np.float32(1)
        expected -= np.float32(0.25) * velocity
    for outcome in done:
        assert {name: np.unique(array).tolist() for name, array in outcome.parameters.items()} == {
            "first": [expected],
            "second": [expected],
        }


def check_retired(history: History, done: list[Outcome], computed: list[int]) -> None:
    """Three pushes were refused, with the variable's name, and nobody used their batches.

    `computed` has the batches of the bad worker, in order.
    """
    refused = [it.result for it in history.of(Answer) if it.result and it.result.outcome == "NON_FINITE"]
    counts = [outcome.outcomes["NON_FINITE"] for outcome in done]
    # The job may end before the bad worker has come to its last bad push.
    assert 1 <= len(refused) <= 3
    assert counts == [len(refused) if outcome.worker == BAD else 0 for outcome in done]
    assert {result.parameter for result in refused} == {"second"}
    pushes = zip(computed, done[BAD].order, strict=True)
    retired = {batch for batch, outcome in pushes if outcome == "NON_FINITE"}
    assert len(retired) == len(refused)
    assert not retired & set(history.applied_batches())


def check_updates(history: History, mode: str) -> None:
    history.wait_equal()
    assert [len(updates) for updates in history.updates] == [12, 12]
    if mode == "async":
        history.check()
    else:
        history.check_rounds(lambda update: 2)


def test_b91_after_a_refused_push_the_round_still_waits_for_that_worker() -> None:
    """Fault B91: in sync its place in the round stays open, for its next push at the same step."""
    with LocalCluster(2, presets={**MODES["sync"], "steps": 1, "learning_rate": 1.0}) as cluster:
        tries: list[int] = []

        def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
            if worker != BAD:
                return ones(3.0), 1
            tries.append(batch)
            return (spoiled(np.nan) if len(tries) < 4 else ones(5.0)), 1

        done = run_workers(2, lambda index: run_worker(cluster.addresses, SPECS, gradient, index=index))
    assert len(set(tries)) == 4
    assert [np.unique(outcome.parameters["first"]).tolist() for outcome in done] == [[-4.0], [-4.0]]
    cluster.history.check_rounds(lambda update: 2)


@pytest.mark.parametrize("mode", MODES)
def test_b91_a_result_that_overflows_ends_the_job(mode: str) -> None:
    """Fault B91: finite gradients, a high rate: exit 5 naming variable and step, and nobody gets the values."""
    presets = {**MODES[mode], "optimizer": "sgd", "learning_rate": 8.0}

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        step = round(float(parameters["first"][0]) / -8)
        return {"first": ones()["first"], "second": ones(MAX / 2 if step == 4 else 0.0)["second"]}, 1

    # In async others may push any number of times while the one that is too large is on its way.
    check_overflow(presets, WORKERS[mode], gradient, steps=range(5, 100) if mode == "async" else (5,))


def test_b91_a_mean_that_overflows_ends_the_job() -> None:
    """Fault B91: three gradients of the largest number, whose rounded weights sum to a little more than 1."""
    presets = {"mode": "sync", "workers": 3, "optimizer": "sgd", "learning_rate": 1e-30}

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        return {"first": ones()["first"], "second": ones(MAX)["second"]}, 8 if batch == 1 else 1

    check_overflow(presets, 3, gradient, steps=(1,))


def check_overflow(presets: dict[str, Any], workers: int, gradient: Any, *, steps: Sequence[int]) -> None:
    with LocalCluster(2, presets=presets) as cluster:
        compute = gathered(cluster, workers, gradient)
        done = run_workers(workers, lambda index: work(cluster.addresses, compute, index))
        ended = cluster.wait_ended()
        (stop,) = cluster.history.of(Stop)
        snapshot = cluster.servers[1]._replay._rounds.snapshot
    why = stop.done.reason
    assert why in [f"the update to step {step} made parameter 'second' infinite or NaN" for step in steps]
    assert stop.done.exit_code == 5
    for error in ended:
        assert isinstance(error, JobFailed)
        assert (error.exit_code, str(error)) == (5, why)
    assert {(outcome.last.exit_code, outcome.last.reason) for outcome in done if outcome.last} == {(5, why)}
    # Values that nobody can go on from were given to nobody.
    assert snapshot is None
    assert not any(float(np.abs(array).max()) == np.inf for outcome in done for array in outcome.parameters.values())


def work(addresses: str, gradient: Any, index: int) -> Outcome:
    """As `run_worker`, but without reading the model at the end, which nobody has then."""
    outcome = Outcome()
    with PSClient(addresses, timeout=20.0) as client:
        session = client.join("test", SPECS, index=index)
        outcome.begin(session)
        if session.opener:
            session.open(ones(0.0))
        reply = session.begin()
        while not reply.done:
            outcome.parameters = {name: array.copy() for name, array in session.parameters.items()}
            reply = client.push(*gradient(session.worker, reply.batch, session.parameters))
        outcome.last = reply
    return outcome
