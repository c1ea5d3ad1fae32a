"""Real models, trained by real workers in this process on real servers."""

from __future__ import annotations

from typing import Any

import pytest
from real_worker import Trained, train

from grpc_ps.models.linear import Linear
from grpc_ps.models.mnist import Mnist

MODELS = {"linear": Linear, "mnist": Mnist}


def trained(model: str, *, workers: int, **more: Any) -> list[Trained]:
    return train([MODELS[model]] * workers, **more)


def test_seed_1_linear_converges() -> None:
    """y = 0.1 x + 0.3 on two shards and two workers, asynchronously, with the model's own settings."""
    for one in trained("linear", shards=2, workers=2, mode="async"):
        assert one.read.values["w"].item() == pytest.approx(0.1, abs=0.005)
        assert one.read.values["b"].item() == pytest.approx(0.3, abs=0.005)


def test_mnist_is_bit_identical_from_run_to_run_and_over_shards() -> None:
    """Thirty synchronous steps of two workers on 1, 1, 2 and 3 shards: the same bits."""
    runs = [trained("mnist", shards=shards, workers=2, mode="sync", steps=30) for shards in (1, 1, 2, 3)]
    read = [one.read for run in runs for one in run]
    assert {each.global_step for each in read} == {30}
    assert len({tuple(values.tobytes() for _, values in sorted(each.values.items())) for each in read}) == 1


@pytest.mark.parametrize("model", ["linear", "mnist"])
def test_b36_one_worker_computes_the_same_in_both_modes(model: str) -> None:
    """Fault B36: with one worker, sync and async are bit-identical."""
    (sync,) = trained(model, shards=2, workers=1, mode="sync", steps=30)
    (other,) = trained(model, shards=2, workers=1, mode="async", steps=30)
    for name, values in sync.read.values.items():
        assert values.tobytes() == other.read.values[name].tobytes(), name
