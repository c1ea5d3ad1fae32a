"""Sync with K = 0: the same bits whatever the chunks, shards, orders of arrival, and workers that come and go."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from light_worker import DEADLINE, Crash, Outcome, run_worker, run_workers
from local_cluster import LocalCluster

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.psserver.lead.parts import Push

# More than one block, several chunks of 64 KiB, and the start and end of a run of blocks on every shard.
SPECS = [
    ParameterSpec(name="a", shape=(270, 500), dtype="float32"),
    ParameterSpec(name="b", shape=(33, 7), dtype="float32"),
    ParameterSpec(name="c", shape=(), dtype="float32"),
]
WORKERS, STEPS = 3, 8
EVERY_RULE: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd"},
    "momentum": {"optimizer": "momentum"},
    "nesterov": {"optimizer": "momentum", "nesterov": True},
    "adagrad": {"optimizer": "adagrad"},
    "adam": {"optimizer": "adam"},
    "adamw": {"optimizer": "adamw"},
    "rmsprop": {"optimizer": "rmsprop", "momentum": 0.5},
    "ftrl": {"optimizer": "ftrl", "l1": 0.001, "l2": 0.01},
    "clip_value": {"optimizer": "sgd", "clip_value": 0.5},
    "clip_norm": {"optimizer": "adam", "clip_norm": 1.0},
    "global_clip_norm": {"optimizer": "adam", "global_clip_norm": 1.0, "weight_decay": 0.01},
    "schedule": {"optimizer": "momentum", "schedule": "cosine:8", "warmup_steps": 3},
}


class Arrivals:
    """Gradients that depend on values and batch, given in an order of arrival that a seed shuffles in each round.

    Args:
        crash_at: the batch whose worker is killed, once.
    """

    def __init__(self, cluster: LocalCluster, seed: int | None, crash_at: int | None = None) -> None:
        self._seed = seed
        self._crash_at = crash_at
        self._whole: set[int] = set()
        self._news = threading.Condition()
        lead: Any = cluster.servers[0]._coordinator
        whole = lead.job.whole

        def noted(shard: int, push: Push, *told: Any) -> None:
            with self._news:
                self._whole.add(push.batch)
                self._news.notify_all()
            whole(shard, push, *told)

        lead.job.whole = noted

    def _wait_turn(self, batch: int) -> None:
        """Waits until the batch before it, in this round's order, has arrived."""
        step, place = divmod(batch, WORKERS)
        order = random.Random(f"{self._seed} {step}").sample(range(WORKERS), WORKERS)
        before = order.index(place) - 1
        if self._seed is not None and before >= 0:
            with self._news:
                assert self._news.wait_for(lambda: step * WORKERS + order[before] in self._whole, DEADLINE)

    def gradient(self, worker: int, batch: int, values: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if batch == self._crash_at:
            self._crash_at = None
            raise Crash
        gradients = {
            name: np.sin(np.float32(3) * value + np.float32(batch), dtype=np.float32) for name, value in values.items()
        }
        self._wait_turn(batch)
        return gradients, 1 + batch % 4


def initial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {spec.name: rng.normal(size=spec.shape).astype(np.float32) for spec in SPECS}


def bits(rule: str, *, shards: int, chunk_bytes: int, order: int | None, crash_at: int | None = None) -> bytes:
    """Trains; returns the bytes of all parameters."""
    presets = {"learning_rate": 0.05, **EVERY_RULE[rule], "mode": "sync", "workers": WORKERS, "steps": STEPS}
    with LocalCluster(shards, presets=presets, chunk_bytes=chunk_bytes) as cluster:
        arrivals = Arrivals(cluster, order, crash_at)

        def work(number: int) -> Outcome:
            outcome = run_worker(cluster.addresses, SPECS, arrivals.gradient, initial=initial(), index=number)
            if outcome.last is None:  # it was killed, and has another one in its place
                cluster.end_lease(number)
                outcome = run_worker(cluster.addresses, SPECS, arrivals.gradient, initial=initial(), index=number)
            return outcome

        done = run_workers(WORKERS, work)
        assert cluster.wait_ended() == [None] * shards
    cluster.history.check_rounds(lambda update: WORKERS)
    assert cluster.history.applied_batches() == list(range(WORKERS * STEPS))
    (end,) = {b"".join(outcome.parameters[spec.name].tobytes() for spec in SPECS) for outcome in done}
    return end


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_parameters_are_bit_identical(rule: str) -> None:
    """Chunks of 64 KiB and 1 MiB, 1 to 3 shards, three orders of arrival."""
    runs = [
        bits(rule, shards=1, chunk_bytes=1 << 20, order=None),
        bits(rule, shards=2, chunk_bytes=1 << 16, order=1),
        bits(rule, shards=3, chunk_bytes=1 << 20, order=2),
        bits(rule, shards=1, chunk_bytes=1 << 16, order=3),
    ]
    assert len(set(runs)) == 1


@pytest.mark.parametrize("rule", ["momentum", "global_clip_norm"])
def test_a_worker_that_is_restarted_changes_no_bit(rule: str) -> None:
    """Killed while it computes, in the middle of the job; its batch is handed out again after its lease."""
    undisturbed = bits(rule, shards=2, chunk_bytes=1 << 20, order=None)
    assert bits(rule, shards=2, chunk_bytes=1 << 16, order=None, crash_at=WORKERS * 4 + 1) == undisturbed
