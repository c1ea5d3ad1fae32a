"""Synchronous rounds: exactly N gradients of the current step, their weighted mean, applied once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from light_worker import Outcome, constant, run_worker, run_workers, scalar
from local_cluster import LocalCluster

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.job_flags import OPTIMIZERS

TWO = {"mode": "sync", "workers": 2, "learning_rate": 0.1}


def values_after(steps: int, pushes: tuple[tuple[float, int], ...], shards: int = 1, **presets: object) -> float:
    """Runs the two-worker bed: each worker's (gradient, examples), for some rounds; returns w."""

    def work(number: int) -> Outcome:
        value, examples = pushes[number]
        return run_worker(cluster.addresses, [scalar()], constant(value, examples), pushes=steps, index=number)

    with LocalCluster(shards, presets={**TWO, **presets}) as cluster:
        done = run_workers(2, work)
    assert all(dict(outcome.outcomes) == {"APPLIED": steps} for outcome in done)
    assert len({float(outcome.parameters["w"]) for outcome in done}) == 1
    return float(done[0].parameters["w"])


@pytest.mark.parametrize("shards", [1, 2])
def test_b33_the_rule_is_the_mean(shards: int) -> None:
    """Fault B33, two-worker bed: gradients 2 and 4 with rate 0.1 give -0.3 (a sum would give -0.6)."""
    assert values_after(1, ((2.0, 1), (4.0, 1)), shards, optimizer="sgd") == pytest.approx(-0.3, abs=1e-6)


def test_b32_momentum_advances_once_a_round() -> None:
    """Fault B32: -0.3 after one round and -0.87 after two; one by one it would be -0.78 in the first."""
    momentum = {"optimizer": "momentum", "momentum": 0.9}
    assert values_after(1, ((2.0, 1), (4.0, 1)), **momentum) == pytest.approx(-0.3, abs=1e-6)
    assert values_after(2, ((2.0, 1), (4.0, 1)), **momentum) == pytest.approx(-0.87, abs=1e-6)


def test_b33_the_mean_is_weighted_by_examples() -> None:
    """Fault B33: 10 examples with gradient 2 and 2 with 4 are the single machine's gradient over 12."""
    expected = -0.1 * (10 * 2 + 2 * 4) / 12
    assert values_after(1, ((2.0, 10), (4.0, 2)), optimizer="sgd") == pytest.approx(expected, abs=1e-6)


def test_b29_every_worker_contributes_once_a_round() -> None:
    """Fault B29: 20 rounds of the two-worker bed follow the mean rule, each push applied."""
    assert values_after(20, ((2.0, 1), (4.0, 1)), optimizer="sgd") == pytest.approx(-6.0, abs=1e-5)


class Regression:
    """Least squares on fixed data, cut into batches by number: what a worker's model does, in numpy."""

    EXAMPLES = 101
    # More than a chunk of 1 KiB.
    FEATURES = 300

    def __init__(self, batch: int) -> None:
        rng = np.random.default_rng(5)
        self.batch = batch
        self.per_epoch = -(-self.EXAMPLES // batch)
        self.x = (rng.normal(size=(self.EXAMPLES, self.FEATURES)) / 3).astype(np.float32)
        self.y = self.x @ rng.normal(size=self.FEATURES).astype(np.float32)

    def gradient(
        self, worker: int, number: int, parameters: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], int]:
        first = number % self.per_epoch * self.batch
        x, y = self.x[first : first + self.batch], self.y[first : first + self.batch]
        error = x @ parameters["w"] - y
        return {"w": (2 * x.T @ error / np.float32(len(x))).astype(np.float32)}, len(x)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_b32_four_workers_equal_one_with_the_fourfold_batch(optimizer: str) -> None:
    """Fault B32: to 1e-5 over 20 steps, with batches of 5 whose last one of 101 examples has a single example."""
    weights = [
        train(4, Regression(5), optimizer=optimizer),
        train(1, Regression(20), optimizer=optimizer),
    ]
    np.testing.assert_allclose(weights[0], weights[1], atol=1e-5)


def train(
    workers: int,
    data: Regression,
    *,
    mode: str = "sync",
    shards: int = 2,
    chunk_bytes: int = 1 << 20,
    **presets: object,
) -> np.ndarray:
    """Trains the regression for 20 steps; returns what all workers agree on at the end."""
    settings = {
        "mode": mode,
        "workers": workers,
        "steps": 20,
        "learning_rate": 0.01,
        "examples": data.EXAMPLES,
        "batch_size": data.batch,
        **presets,
    }
    spec = ParameterSpec(name="w", shape=(data.FEATURES,), dtype="float32")
    with LocalCluster(shards, presets=settings, chunk_bytes=chunk_bytes) as cluster:
        done = run_workers(workers, lambda _: run_worker(cluster.addresses, [spec], data.gradient))
        assert cluster.wait_ended() == [None] * shards
    for outcome in done:
        assert outcome.outcomes["APPLIED"] == outcome.outcomes.total()
        assert outcome.parameters["w"].tobytes() == done[0].parameters["w"].tobytes()
    return done[0].parameters["w"]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_b36_with_one_worker_sync_and_async_are_bit_identical(optimizer: str) -> None:
    """Fault B36: switching the mode needs nothing else and changes nothing."""
    sync = train(1, Regression(20), optimizer=optimizer)
    other = train(1, Regression(20), mode="async", optimizer=optimizer)
    assert sync.tobytes() == other.tobytes()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rounds_are_bit_identical_from_run_to_run_over_shards_and_chunks(optimizer: str) -> None:
    hows = [(1, 1 << 20), (1, 1 << 20), (2, 1024), (3, 64)]
    runs = [train(3, Regression(7), shards=shards, chunk_bytes=size, optimizer=optimizer) for shards, size in hows]
    assert len({run.tobytes() for run in runs}) == 1


def test_b28_workers_run_out_of_data_at_different_times() -> None:
    """Fault B28: one epoch of 101 examples in batches of 10 on two workers is 6 rounds, the last of one batch."""
    data = Regression(10)
    settings = {**TWO, "epochs": 1, "examples": data.EXAMPLES, "batch_size": 10}
    spec = ParameterSpec(name="w", shape=(data.FEATURES,), dtype="float32")
    with LocalCluster(1, presets=settings) as cluster:
        done = run_workers(2, lambda _: run_worker(cluster.addresses, [spec], data.gradient))
        assert cluster.wait_ended() == [None]
    assert sum(outcome.outcomes["APPLIED"] for outcome in done) == 11
    assert {outcome.global_step for outcome in done} == {6}
