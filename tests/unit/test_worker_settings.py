"""Settings that a worker states: the user's, and behind them the model's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpc_ps.models.datasets.line import Line
from grpc_ps.models.mnist import Mnist
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.initial import InitialFile
from grpc_ps.worker.settings import default_settings, stated_settings, until_metric


def test_settings_of_a_model_give_way_to_the_users() -> None:
    chosen = default_settings({}, Mnist.defaults)
    assert chosen == {
        "optimizer": "adagrad",
        "learning_rate": 0.01,
        "batch_size": 100,
        "steps": 3000,
        "initial_accumulator": 1e-5,
    }
    assert "steps" not in default_settings({"epochs": 2}, Mnist.defaults)
    assert "steps" not in default_settings({"until": "accuracy>=0.9"}, Mnist.defaults)
    own = replace(Mnist.defaults, hyper={"rho": 0.5, "batch_size": 7, "steps": 8})
    assert default_settings({}, own) == {
        "optimizer": "adagrad",
        "learning_rate": 0.01,
        "batch_size": 100,
        "steps": 3000,
        "rho": 0.5,
    }
    assert "steps" not in default_settings({"epochs": 2}, own)
    config = WorkerConfig(addresses=(), model="linear", arguments={}, stated={"seed": 4})
    assert stated_settings(config, Line()) == {"seed": 4, "examples": 0, "data": "line-0.1-0.3"}
    initial = InitialFile(Path("w.npz"), "0f" * 32, {})
    assert stated_settings(replace(config, initial=initial), Line())["initial_values"] == "0f" * 32


@pytest.mark.parametrize(
    ("settings", "metric"),
    [({}, None), ({"until": ""}, None), ({"until": "accuracy>=0.97"}, "accuracy"), ({"until": "loss<=1e-3"}, "loss")],
)
def test_the_metric_that_ends_a_job(settings: dict[str, Any], metric: str | None) -> None:
    assert until_metric(settings) == metric
