"""Real models, trained by real workers in this process on real servers."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from light_worker import DEADLINE
from local_cluster import LocalCluster

from grpc_ps.client import PSClient, TrainingSession
from grpc_ps.models.linear import Linear
from grpc_ps.models.mnist import Mnist
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.run import Worker

MODELS = {"linear": Linear, "mnist": Mnist}


class WatchedWorker(Worker):
    """Keeps what the model has become, read before it leaves."""

    values: dict[str, np.ndarray]
    step: int

    def _last_evaluation(self, client: PSClient, session: TrainingSession) -> dict[str, float]:
        pulled = client.pull()
        self.step, self.values = pulled.global_step, pulled.values
        return {}


def train(model: str, *, shards: int, workers: int, **stated: Any) -> list[WatchedWorker]:
    """Trains to the end; returns the workers, which must have ended well."""
    errors: list[BaseException] = []

    def run(worker: WatchedWorker) -> None:
        try:
            worker.run()
        except BaseException as error:
            errors.append(error)

    with LocalCluster(shards, presets={"workers": workers, **stated}) as cluster:
        config = WorkerConfig(
            addresses=tuple(cluster.addresses.split(",")), model=model, arguments={}, stated={}, data=None
        )
        trained = [WatchedWorker(config, MODELS[model], lambda line: None) for _ in range(workers)]
        threads = [threading.Thread(target=run, args=(worker,), daemon=True) for worker in trained]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        assert errors == []
        assert cluster.wait_ended() == [None] * shards
    return trained


def test_seed_1_linear_converges() -> None:
    """y = 0.1 x + 0.3 on two shards and two workers, asynchronously, with the model's own settings."""
    (worker, _) = train("linear", shards=2, workers=2, mode="async")
    assert worker.values["w"].item() == pytest.approx(0.1, abs=0.005)
    assert worker.values["b"].item() == pytest.approx(0.3, abs=0.005)


def test_mnist_is_bit_identical_from_run_to_run_and_over_shards() -> None:
    """Thirty synchronous steps of two workers on 1, 1, 2 and 3 shards: the same bits."""
    runs = [train("mnist", shards=shards, workers=2, mode="sync", steps=30) for shards in (1, 1, 2, 3)]
    digests = {tuple(values.tobytes() for _, values in sorted(worker.values.items())) for run in runs for worker in run}
    assert {worker.step for run in runs for worker in run} == {30}
    assert len(digests) == 1


@pytest.mark.parametrize("model", ["linear", "mnist"])
def test_b36_one_worker_computes_the_same_in_both_modes(model: str) -> None:
    """Fault B36: with one worker, sync and async are bit-identical."""
    (sync,) = train(model, shards=2, workers=1, mode="sync", steps=30)
    (other,) = train(model, shards=2, workers=1, mode="async", steps=30)
    for name, values in sync.values.items():
        assert values.tobytes() == other.values[name].tobytes(), name
