"""Real models, trained by real workers in this process on real servers."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from light_worker import DEADLINE
from local_cluster import LocalCluster

from grpc_ps.client import Pulled
from grpc_ps.models.linear import Linear
from grpc_ps.models.mnist import Mnist
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.run import Worker

MODELS = {"linear": Linear, "mnist": Mnist}


def train(model: str, *, shards: int, workers: int, **stated: Any) -> list[Pulled]:
    """Trains to the end; returns what each worker read of the model before it left. All must have ended well."""
    errors: list[BaseException] = []
    read: list[Pulled] = []

    def run(worker: Worker) -> None:
        try:
            worker.run()
        except BaseException as error:
            errors.append(error)

    with LocalCluster(shards, presets={"workers": workers, **stated}) as cluster:
        config = WorkerConfig(
            addresses=tuple(cluster.addresses.split(",")), model=model, arguments={}, stated={}, data=None
        )
        trained = [
            Worker(config, MODELS[model], lambda line: None, at_end=lambda client: read.append(client.pull()))
            for _ in range(workers)
        ]
        threads = [threading.Thread(target=run, args=(worker,), daemon=True) for worker in trained]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        assert errors == []
        assert cluster.wait_ended() == [None] * shards
    assert len(read) == workers
    return read


def test_seed_1_linear_converges() -> None:
    """y = 0.1 x + 0.3 on two shards and two workers, asynchronously, with the model's own settings."""
    for read in train("linear", shards=2, workers=2, mode="async"):
        assert read.values["w"].item() == pytest.approx(0.1, abs=0.005)
        assert read.values["b"].item() == pytest.approx(0.3, abs=0.005)


def test_mnist_is_bit_identical_from_run_to_run_and_over_shards() -> None:
    """Thirty synchronous steps of two workers on 1, 1, 2 and 3 shards: the same bits."""
    runs = [train("mnist", shards=shards, workers=2, mode="sync", steps=30) for shards in (1, 1, 2, 3)]
    digests = {tuple(values.tobytes() for _, values in sorted(read.values.items())) for run in runs for read in run}
    assert {read.global_step for run in runs for read in run} == {30}
    assert len(digests) == 1


@pytest.mark.parametrize("model", ["linear", "mnist"])
def test_b36_one_worker_computes_the_same_in_both_modes(model: str) -> None:
    """Fault B36: with one worker, sync and async are bit-identical."""
    (sync,) = train(model, shards=2, workers=1, mode="sync", steps=30)
    (other,) = train(model, shards=2, workers=1, mode="async", steps=30)
    for name, values in sync.values.items():
        assert values.tobytes() == other.values[name].tobytes(), name
