"""A Keras model from the job that trains it to the file that Keras loads, by the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from commands import run
from local_cluster import LocalCluster
from real_worker import train_in

from grpc_ps.client.shared.checkpoint_flags import CheckpointSettings
from grpc_ps.worker.loading import model_factory

pytestmark = pytest.mark.e2e

CODE = """
import keras
import numpy as np

def build():
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.BatchNormalization(), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"])
    return model

def arrays(seed):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, 200).astype(np.int64)
    features = generator.random((200, 6), dtype=np.float32) + np.eye(6, dtype=np.float32)[labels]
    return features, labels

def data():
    return arrays(0), arrays(1)
"""


def test_what_a_job_has_saved_is_a_keras_model_that_evaluates_as_its_workers_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(CODE)
    Path("ckpt").mkdir()
    stated = {"steps": 30, "seed": 1}
    saving = CheckpointSettings(directory=Path("ckpt"))
    with LocalCluster(presets={"mode": "sync", "workers": 2}, checkpoints=saving) as cluster:
        factory = model_factory("mine.py:build", {})
        trained = train_in(cluster, [factory] * 2, stated=stated)
        assert [one.error for one in trained] == [None, None]
    exported = run("psctl", "export", "m.keras", "--checkpoint", "ckpt", "--model", "mine.py:build")
    assert exported.returncode == 0, exported.stderr
    assert exported.stdout.startswith("m.keras: 8 parameters of global step 30, ")
    model: Any = keras.models.load_model("m.keras")
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 3, 200)
    features = generator.random((200, 6), dtype=np.float32) + np.eye(6, dtype=np.float32)[labels]
    found = model.evaluate(features, labels, verbose=0, return_dict=True)
    evaluated = [one.summary["metrics"] for one in trained if one.summary["metrics"]]
    assert evaluated
    assert evaluated[0]["accuracy"] > 0.5
    for metrics in evaluated:
        assert found == pytest.approx(metrics, abs=1e-6)
