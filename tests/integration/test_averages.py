"""Moving averages of a job: whoever wants them reads them, of one step on all shards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from averaged_model import Known
from light_worker import constant, run_worker
from local_cluster import LocalCluster
from real_worker import train

from grpc_ps.client import PSClient
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.describe import Evaluated

STEPS = 5
SPECS = [
    ParameterSpec(name="w", shape=(300, 500), dtype="float32"),
    ParameterSpec(name="b", shape=(7,), dtype="float32"),
    ParameterSpec(name="mean", shape=(3,), dtype="float32", trainable=False),
    ParameterSpec(name="count", shape=(2,), dtype="int64", trainable=False),
]


def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
    found = {spec.name: np.full(spec.shape, batch + 1, spec.dtype) for spec in SPECS if spec.dtype == "float32"}
    return found, 1


def after(steps: int, decay: float) -> tuple[float, float]:
    """The value and the average of every trainable element: the rate is 1/8, the first value 0."""
    value = average = 0.0
    for step in range(1, steps + 1):
        value -= step / 8
        average -= (1 - min(decay, (1 + step) / (10 + step))) * (average - value)
    return value, average


@pytest.mark.parametrize(("shards", "pull_dtype"), [(1, "float32"), (3, "bfloat16")])
def test_a_reader_gets_averages_or_values(shards: int, pull_dtype: str) -> None:
    presets = {"optimizer": "sgd", "learning_rate": 0.125, "moving_average": 0.25, "pull_dtype": pull_dtype}
    with LocalCluster(shards, presets=presets) as cluster, PSClient(cluster.addresses) as client:
        run_worker(cluster.addresses, SPECS, gradient, pushes=STEPS)
        values, averages, again = client.pull(), client.pull(averages=True), client.pull(["b"], averages=True)
    value, average = after(STEPS, 0.25)
    assert abs(value - average) > 0.1
    assert (values.averages, averages.averages, again.averages) == (False, True, True)
    assert (values.global_step, averages.global_step) == (STEPS, STEPS)
    for pulled, expected in ((values, value), (averages, average)):
        for name in ("w", "b"):
            np.testing.assert_allclose(pulled.values[name], expected, rtol=1e-6)
        assert pulled.values["mean"].tolist() == [15.0] * 3, "what is not trainable has no average"
        assert pulled.values["count"].tolist() == [0, 0]
    assert again.values["b"].tolist() == averages.values["b"].tolist()


def test_a_job_without_averages_gives_its_values() -> None:
    with LocalCluster(2, presets={"optimizer": "sgd"}) as cluster, PSClient(cluster.addresses) as client:
        run_worker(cluster.addresses, SPECS, gradient, pushes=1)
        values, averages = client.pull(), client.pull(averages=True)
    assert (averages.averages, averages.global_step) == (False, 1)
    assert {name: it.tobytes() for name, it in averages.values.items()} == {
        name: it.tobytes() for name, it in values.values.items()
    }


def of_ones(steps: int, decay: float) -> tuple[float, float]:
    """The value and the average of `Known` after so many updates."""
    value = average = 0.0
    for step in range(1, steps + 1):
        value -= 0.125
        average -= (1 - min(decay, (1 + step) / (10 + step))) * (average - value)
    return value, average


def test_evaluation_is_of_the_averages_and_training_of_the_values() -> None:
    stated = {"moving_average": 0.25, "eval_every": 2}
    (trained,) = train([Known], shards=2, stated=stated)
    value, average = of_ones(6, 0.25)
    assert trained.summary["metrics"]["w"] == pytest.approx(average, rel=1e-6)
    assert trained.summary["loss"] == pytest.approx(value + 0.125, rel=1e-6)
    assert trained.read.values["w"] == pytest.approx(value, rel=1e-6)
    shown = [re.search(r"evaluation at global_step (\d): w = (-[\d.]+)", line) for line in trained.lines]
    for each in filter(None, shown):
        assert float(each[2]) == pytest.approx(of_ones(int(each[1]), 0.25)[1], rel=1e-5)
    assert any(shown)


def test_a_reader_evaluates_averages_or_values() -> None:
    presets = {"optimizer": "sgd", "learning_rate": 0.125, "moving_average": 0.25}
    spec = ParameterSpec(name="w", shape=(), dtype="float32")
    with LocalCluster(1, presets=presets) as cluster:
        run_worker(cluster.addresses, [spec], constant(1.0), pushes=4)
        settings = WorkerConfig(
            addresses=tuple(cluster.addresses.split(",")), model="averaged_model:Known", arguments={}, stated={}
        )
        found = [Evaluated.of(replace(settings, raw=raw)) for raw in (False, True)]
    value, average = of_ones(4, 0.25)
    assert [each.metrics["w"] for each in found] == pytest.approx([average, value], rel=1e-6)
    assert [each.averages for each in found] == [True, False]
    assert found[0].line().endswith("(16 examples, moving averages)")
    assert found[1].record() == {"global_step": 4, "metrics": {"w": value}, "examples": 16, "averages": False}
