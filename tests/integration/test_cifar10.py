"""CIFAR-10 as a job, on small files: the same bits whatever the number of shards, though the images are distorted."""

from __future__ import annotations

from pathlib import Path

import pytest
from cifar_files import RECORDS, small_files, write_files
from local_cluster import LocalCluster
from real_worker import Trained, train_in

from grpc_ps.models.cifar10 import Cifar10

__all__ = ["small_files"]

STEPS = 3


def train(folder: Path, shards: int) -> list[Trained]:
    """Two workers in rounds; with it the averages of the end, evaluated by one of them."""
    stated = {"steps": STEPS, "batch_size": 4, "seed": 5, "mode": "sync", "workers": 2, "threads": 1}
    with LocalCluster(shards) as cluster:
        trained = train_in(cluster, [Cifar10] * 2, stated=stated, data="data_batch_1,data_batch_2", data_dir=folder)
        assert [one.error for one in trained] == [None] * 2
        assert cluster.wait_ended() == [None] * shards
    return trained


@pytest.mark.usefixtures("small_files")
def test_distorted_images_are_the_same_for_any_number_of_shards(tmp_path: Path) -> None:
    write_files(tmp_path)
    runs = [train(tmp_path, shards) for shards in (1, 3)]
    bits = [{name: it.tobytes() for name, it in one.read.values.items()} for run in runs for one in run]
    assert all(each == bits[0] for each in bits)
    losses = [sorted(one.summary["loss"] for one in run) for run in runs]
    assert losses[0] == losses[1]
    assert 4.4 < losses[0][0] < 5.0, "ln 10 and the weight decay of the first values"
    for run in runs:
        metrics = next(one.summary["metrics"] for one in run if one.summary["metrics"])
        assert metrics["accuracy"] * RECORDS == pytest.approx(round(metrics["accuracy"] * RECORDS))
        assert 2.2 < metrics["loss"] < 2.5
