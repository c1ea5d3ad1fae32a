"""Rounds and modes as people mix them up: who counts in a round, who may join, what else a mode needs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from history import wait_for
from light_worker import constant, gathered, run_worker, run_workers, scalar
from local_cluster import LocalCluster
from real_worker import train, train_in

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import InvalidPush, Mismatch
from grpc_ps.models.linear import Linear
from grpc_ps.models.mnist import Mnist

TWO = {"mode": "sync", "workers": 2, "learning_rate": 0.1}
MODELS = {"linear": Linear, "mnist": Mnist}


@pytest.mark.parametrize("shards", [1, 2])
def test_b29_a_fast_worker_contributes_once_a_round(shards: int) -> None:
    """Fault B29: two-worker bed, worker 1 always last, 20 rounds: the mean of one gradient of each, every time."""
    with LocalCluster(shards, presets={**TWO, "steps": 20}) as cluster:
        job: Any = cluster.servers[0]._coordinator.job  # type: ignore[union-attr]  # shard 0 has one

        def gradient(worker: int, batch: int, values: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
            if worker == 1:
                wait_for(lambda: job.done or any(member.pending for member in job.members), "worker 0 to be whole")
            return {"w": np.float32(2.0 if worker == 0 else 4.0) * np.ones_like(values["w"])}, 1

        done = run_workers(2, lambda number: run_worker(cluster.addresses, [scalar()], gradient, index=number))
        assert cluster.wait_ended() == [None] * shards
    cluster.history.check_rounds(lambda update: 2)
    expected = np.float32(0)
    for _ in range(20):
        expected -= np.float32(0.1) * np.float32(3)
    for outcome in done:
        assert (outcome.global_step, dict(outcome.outcomes)) == (20, {"APPLIED": 20})
        assert float(outcome.parameters["w"]) == expected


def test_b29_a_second_push_for_the_same_round_is_not_counted() -> None:
    """Fault B29: by hand, once as a repetition, once as another push: the round has one gradient of each worker."""
    with LocalCluster(1, presets={**TWO, "steps": 1}) as cluster:
        job: Any = cluster.servers[0]._coordinator.job  # type: ignore[union-attr]  # shard 0 has one
        with PSClient(cluster.addresses, timeout=20) as first, PSClient(cluster.addresses, timeout=20) as second:
            one = first.join("test", [scalar()], index=0)
            one.open({"w": np.zeros((), np.float32)})
            other = second.join("test", [scalar()], index=1)
            one.begin()
            other.begin()
            one.send({"w": np.full((), 2.0, np.float32)}, 1)
            wait_for(lambda: any(member.pending for member in job.members), "the push to be whole")
            one._exchange._sequence -= 1
            one.send({"w": np.full((), 100.0, np.float32)}, 1)  # the same number again: not taken anew
            one.send({"w": np.full((), 100.0, np.float32)}, 1)  # the next number, while the last is undecided
            with pytest.raises(InvalidPush, match="push 2 of worker 0 is not decided yet"):
                one.wait()
            reply = second.push({"w": np.full((), 4.0, np.float32)})
            assert (reply.outcome, reply.done, reply.global_step) == ("APPLIED", True, 1)
            assert float(second.pull().values["w"]) == pytest.approx(-0.3, abs=1e-6)
    cluster.history.check_rounds(lambda update: 2)


@pytest.mark.parametrize(("job", "newcomer"), [("sync", "async"), ("async", "sync")])
def test_b36_another_mode_is_refused_when_joining(job: str, newcomer: str) -> None:
    """Fault B36: with both values; one that states no mode takes the job's, and the job does not notice."""
    with LocalCluster(2, presets={**TWO, "mode": job, "steps": 5}) as cluster:
        with PSClient(cluster.addresses, timeout=20.0) as first:
            first.join("test", [scalar()], stated={"mode": job}).open({"w": np.zeros((), np.float32)})
            text = f"mode: the job has '{job}', this worker has '{newcomer}'"
            with PSClient(cluster.addresses, timeout=20.0) as second, pytest.raises(Mismatch, match=text) as refused:
                second.join("test", [scalar()], stated={"mode": newcomer})
            assert refused.value.exit_code == 2
            with PSClient(cluster.addresses, timeout=20.0) as third:
                assert third.join("test", [scalar()]).settings["mode"] == job
        ones = gathered(cluster, 2, constant(1.0))
        done = run_workers(2, lambda _: run_worker(cluster.addresses, [scalar()], ones))
        assert cluster.wait_ended() == [None, None]
    assert {outcome.global_step for outcome in done} == {5}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("model", MODELS)
def test_b36_a_mode_needs_no_other_flag(model: str, mode: str, workers: int) -> None:
    """Fault B36: the same command with only the mode changed; within one epoch."""
    trained = train([MODELS[model]] * workers, mode=mode, steps=7)
    pushes = [one.summary["outcomes"].get("APPLIED", 0) for one in trained]
    assert sum(pushes) == (7 * workers if mode == "sync" else 7)
    assert {one.summary["global_step"] for one in trained} == {7}


def test_b39_steps_are_global_and_both_counts_are_shown() -> None:
    """Fault B39: four real workers, 101 steps, one that starts when most is done: 101 updates, counted by two names."""
    with LocalCluster(2, presets={"mode": "async", "batch_size": 8, "steps": 101}) as cluster:
        trained = train_in(cluster, [Linear] * 4)
        assert [one.error for one in trained] == [None] * 4
        assert cluster.wait_ended() == [None, None]
    cluster.history.check()
    assert cluster.history.step == 101
    assert sum(one.summary["outcomes"].get("APPLIED", 0) for one in trained) == 101
    assert {one.summary["global_step"] for one in trained} == {101}
    shown = [line for one in trained for line in one.lines if "loss" in line]
    assert shown
    assert all("global_step " in line and "local_step " in line for line in shown)


def test_b39_a_slow_worker_does_not_overshoot() -> None:
    """Fault B39: ten times slower than three others; its push beyond the limit is answered DONE and not applied."""
    with LocalCluster(2, presets={"learning_rate": 2.0**-10, "steps": 101}) as cluster:
        history = cluster.history
        together, begun = threading.Barrier(4), set[int]()

        def gradient(worker: int, batch: int, values: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
            if worker not in begun:
                # Each holds a number before any of them pushes.
                begun.add(worker)
                together.wait(30)
            if worker == 3:
                history.until_step(101 if history.step >= 60 else history.step + 30)
            return {"w": np.ones_like(values["w"])}, 1

        done = run_workers(4, lambda number: run_worker(cluster.addresses, [scalar()], gradient, index=number))
        assert cluster.wait_ended() == [None, None]
    history.check()
    assert history.step == sum(outcome.outcomes["APPLIED"] for outcome in done) == 101
    assert all(outcome.sent == outcome.outcomes.total() for outcome in done)
    # Its last push comes too late, unless it is itself the last one.
    assert done[3].outcomes["DONE"] == 1 or history.updates[0][-1].pushes[0].push.worker == 3
    for outcome in done:
        assert outcome.last is not None
        assert (outcome.last.done, outcome.last.exit_code, outcome.global_step) == (True, 0, 101)
        assert float(outcome.parameters["w"]) == -101 / 1024
