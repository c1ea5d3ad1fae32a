"""Where the time goes, as real shards, workers and the lead count it: never less than what surely passed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import numpy as np
import pytest
from history import wait_for
from light_worker import run_worker, run_workers, scalar
from local_cluster import LocalCluster

from grpc_ps.client import ClusterStatus, PSClient
from grpc_ps.client.time_shares import shares

STEPS = 12
SLEEP = 0.01
ONE = {"w": np.ones((), np.float32), "v": np.ones((), np.float32)}
SPECS = [scalar("w"), scalar("v")]


def reading(cluster: LocalCluster, ready: Callable[[ClusterStatus], bool]) -> ClusterStatus:
    """The first status of which that holds."""
    found: list[ClusterStatus] = []
    with PSClient(cluster.addresses, timeout=20.0) as client:

        def look() -> bool:
            found.append(client.status())
            return ready(found[-1])

        wait_for(look, "the times to be told")
    return found[-1]


def told(workers: int, steps: int) -> Callable[[ClusterStatus], bool]:
    """Whether all have told of so many steps, and all shards of the updates before them and what answered these.

    A shard may tell of an update before it has answered it.
    """

    def ready(now: ClusterStatus) -> bool:
        theirs = [worker.times for worker in now.workers if worker.times is not None]
        shards = [shard.times for shard in now.shards if shard.times is not None]
        all_steps = len(theirs) == workers and {times.steps for times in theirs} == {steps}
        counts = {(times.updates, times.releases) for times in shards}
        return all_steps and len(shards) == 2 and counts == {(steps + 1, workers * (steps + 2))}

    return ready


def test_a_worker_that_sleeps_in_its_step_shows_compute() -> None:
    seen: list[ClusterStatus] = []

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[Mapping[str, np.ndarray], int]:
        if batch == STEPS - 1:
            # The first of the steps that are answered by now does not count.
            seen.append(reading(cluster, told(workers=1, steps=STEPS - 2)))
        time.sleep(SLEEP)
        return ONE, 1

    with LocalCluster(2, presets={"steps": STEPS}) as cluster:
        run_worker(cluster.addresses, SPECS, gradient)
    (now,) = seen
    (worker,) = now.workers
    assert worker.times is not None
    assert worker.times.compute >= SLEEP * (STEPS - 2)
    assert worker.held_seconds == 0.0
    assert min(worker.times.encode, worker.times.answer, worker.times.receive) > 0.0
    for shard in now.shards:
        assert shard.times is not None
        # The initial values are a push, and what they are answered with is a release.
        assert (shard.times.pushes, shard.times.updates, shard.times.releases) == (STEPS, STEPS - 1, STEPS)
        assert min(shard.times.stage, shard.times.apply, shard.times.encode) > 0.0
    step = shares(now).workers[0]
    measured = worker.times.answer + worker.times.receive
    assert (step.wire + step.shard + step.wait) * (STEPS - 2) / 1000 == pytest.approx(measured)


def test_a_straggler_makes_the_others_show_wait() -> None:
    seen: list[ClusterStatus] = []
    rounds = count()

    def waits(cluster: LocalCluster) -> bool:
        with PSClient(cluster.addresses, timeout=20.0) as client:
            return client.status().workers[0].activity == "waiting for its round"

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[Mapping[str, np.ndarray], int]:
        if worker == 1:
            number = next(rounds)
            if number == STEPS - 1:
                seen.append(reading(cluster, told(workers=2, steps=STEPS - 2)))
            wait_for(lambda: waits(cluster), "the fast worker's push")
            time.sleep(SLEEP)
        return ONE, 1

    with LocalCluster(2, presets={"mode": "sync", "workers": 2, "steps": STEPS}) as cluster:
        run_workers(2, lambda index: run_worker(cluster.addresses, SPECS, gradient, index=index))
    (now,) = seen
    fast, slow = now.workers
    assert fast.held_seconds >= SLEEP * (STEPS - 2)
    assert slow.held_seconds == 0.0
    assert slow.times is not None
    assert fast.times is not None
    assert slow.times.compute >= SLEEP * (STEPS - 2)
    found = shares(now).workers
    assert found[0].wait >= SLEEP * 1000
    assert found[1].wait == 0.0
