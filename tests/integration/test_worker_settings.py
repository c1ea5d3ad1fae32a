"""Settings of the job as real workers carry them out: evaluation, the end by a metric, first values, state."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from local_cluster import LocalCluster
from real_worker import train, train_in

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import DataError, Mismatch, UsageError
from grpc_ps.models import DataBundle, ModelDefaults
from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.linear import Linear
from grpc_ps.models.mnist import Mnist
from grpc_ps.worker.data import Order
from grpc_ps.worker.initial import open_initial
from grpc_ps.worker.variables import parameter_specs, read_values

SMALL = functools.partial(Mnist, hidden=16)


EVALUATED = re.compile(r"evaluation at global_step (\d+): accuracy = ([\d.]+), loss = [\d.e-]+$")


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_job_ends_when_an_evaluation_is_good_enough(mode: str) -> None:
    trained = train([SMALL] * 2, shards=2, mode=mode, stated={"until": "accuracy>=0.6", "eval_every": 20})
    reason = trained[0].summary["reason"]
    assert trained[1].summary["reason"] == reason
    found = re.fullmatch(r"accuracy ([\d.]+) >= 0.6 at global step (\d+)", reason)
    assert found is not None, reason
    assert float(found[1]) >= 0.6
    last = trained[0].read.global_step
    assert trained[1].read.global_step == last
    assert 20 <= int(found[2]) <= last
    # One of the two has evaluated, at that step too, and at the last one: whoever finds it gone then does so again.
    evaluated = [[match for line in one.lines if (match := EVALUATED.search(line))] for one in trained]
    assert f"{float(found[1]):.6g}" in {each[2] for lines in evaluated for each in lines if each[1] == found[2]}
    accuracies = [one.summary["accuracy"] for one in trained]
    assert accuracies != [None, None]
    for accuracy, lines in zip(accuracies, evaluated, strict=True):
        if accuracy is not None:
            assert (lines[-1][1], lines[-1][2]) == (str(last), f"{accuracy:.6g}")


def test_the_jobs_own_eval_every_holds_for_a_worker_that_states_none() -> None:
    with LocalCluster(presets={"eval_every": 10, "steps": 10**9}) as cluster:
        evaluated: list[int] = []

        def on_line(line: str) -> None:
            if match := EVALUATED.search(line):
                evaluated.append(int(match[1]))
                if len(evaluated) == 3:
                    with PSClient(cluster.addresses) as client:
                        client.stop()

        (one,) = train_in(cluster, [SMALL], on_line=on_line)
        assert one.error is None
        assert cluster.wait_ended() == [None]
    assert all(later // 10 > earlier // 10 for earlier, later in pairwise(evaluated[:3]))
    assert evaluated[-1] == one.summary["global_step"]


@pytest.mark.parametrize(
    ("factory", "until", "says"),
    [
        (SMALL, "acuracy>=0.5", "--until: the model has no metric acuracy; it has: accuracy, loss"),
        (Linear, "error<=0.1", "--until: there is no test set to find error on; choose other data, or set --steps"),
    ],
)
def test_an_end_that_can_never_come_is_refused(factory: Any, until: str, says: str) -> None:
    """Before anybody is asked where the worker states it itself, and when it has joined where the job does."""
    with LocalCluster(presets={"until": until}) as cluster:
        with pytest.raises(UsageError) as refused:
            train_in(cluster, [factory], stated={"until": until})
        (one,) = train_in(cluster, [factory])
    assert isinstance(one.error, UsageError)
    assert str(refused.value) == str(one.error) == says


def save(folder: Path, **values: np.ndarray) -> Path:
    path = folder / "weights.npz"
    np.savez(path, **values)
    return path


def test_first_values_come_from_the_file(tmp_path: Path) -> None:
    path = save(tmp_path, w=np.array([0.75]), b=np.array([-2.0], np.float16), extra=np.zeros(3))
    with LocalCluster(2, presets={"steps": 1, "learning_rate": 1e-30}) as cluster:
        (one,) = train_in(cluster, [Linear], initial=open_initial(path))
        assert one.error is None
        assert cluster.wait_ended() == [None, None]
    assert {name: value.tolist() for name, value in one.read.values.items()} == {"w": [0.75], "b": [-2.0]}


def test_a_job_with_other_first_values_refuses_the_worker(tmp_path: Path) -> None:
    initial = open_initial(save(tmp_path, w=np.zeros(1), b=np.zeros(1)))
    line = Linear()
    stated = {"examples": 0, "data": "line-0.1-0.3"}
    with LocalCluster(presets={"steps": 10**9}) as cluster, PSClient(cluster.addresses) as client:
        client.join("linear", parameter_specs(line.variables), stated=stated).open(read_values(line.variables))
        (one,) = train_in(cluster, [Linear], initial=initial)
    assert isinstance(one.error, Mismatch)
    assert str(one.error) == f"initial_values: the job has '', this worker has {initial.digest!r}"


def test_a_file_that_does_not_fit_is_found_before_joining(tmp_path: Path) -> None:
    initial = open_initial(save(tmp_path, w=np.zeros(2), b=np.zeros(1)))
    says = r"parameter 'w' has shape \[2\], the model's has \[1\]"
    with LocalCluster() as cluster, pytest.raises(DataError, match=says):
        train_in(cluster, [Linear], initial=initial)


EXAMPLES, BATCH = 20, 2


class Normed:
    """Moving statistics as batch normalisation has them; nothing is learnt.

    `total` adds up the batches' means; `mean` follows them; `count` is whole, so it is not shared.
    """

    name = "normed"
    shown = ()
    defaults = ModelDefaults(optimizer="sgd", learning_rate=0.1, batch_size=BATCH, steps=0)

    def __init__(self) -> None:
        self.w = tf.Variable([1.0], name="w")
        self.total = tf.Variable(0.0, name="total", trainable=False)
        self.mean = tf.Variable(0.0, name="mean", trainable=False)
        self.count = tf.Variable(7, name="count", trainable=False, dtype=tf.int64)
        self.variables = (self.w, self.total, self.mean, self.count)

    def data(self, directory: Path | None) -> DataBundle:
        x = np.arange(EXAMPLES, dtype=np.float32) ** 2
        return DataBundle(train=ArrayDataset(x, x), test=None, description="squares")

    def initialize(self, seed: int) -> None:
        """Values as they were made."""

    def losses(self, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        mean = tf.reduce_mean(features)
        self.total.assign_add(mean)
        self.mean.assign_add(0.125 * (mean - self.mean))
        self.count.assign_add(1)
        return features * 0.0 * self.w

    def metrics(self, features: tf.Tensor, labels: tf.Tensor) -> Mapping[str, tf.Tensor]:
        return {}


def batch_means(seed: int) -> list[float]:
    order = Order(examples=EXAMPLES, batch_size=BATCH, seed=seed)
    x = np.arange(EXAMPLES, dtype=np.float64) ** 2
    return [float(x[order.indices(number)].mean()) for number in range(EXAMPLES // BATCH)]


@pytest.mark.parametrize("shards", [1, 2])
def test_state_is_averaged_in_rounds(shards: int) -> None:
    """Two workers: each round adds the mean of both workers' changes, all computed from the same values."""
    trained = train([Normed] * 2, shards=shards, mode="sync", seed=3, stated={"epochs": 1})
    means = batch_means(3)
    total = mean = 0.0
    for one, two in zip(means[::2], means[1::2], strict=True):
        total += (one + two) / 2
        mean += 0.125 * ((one + two) / 2 - mean)
    for each in trained:
        assert each.read.global_step == len(means) // 2
        assert each.read.values["total"].item() == pytest.approx(total, rel=1e-6)
        assert each.read.values["mean"].item() == pytest.approx(mean, rel=1e-6)
        assert each.read.values["count"].item() == 7


@pytest.mark.parametrize("workers", [1, 2])
def test_state_is_added_without_rounds(workers: int) -> None:
    """Every change counts whole, in whatever order; with one worker the statistics follow the batches one by one."""
    trained = train([Normed] * workers, shards=2, mode="async", seed=3, stated={"epochs": 1})
    means = batch_means(3)
    mean = functools.reduce(lambda moving, each: moving + 0.125 * (each - moving), means, 0.0)
    for one in trained:
        assert one.read.global_step == len(means)
        assert one.read.values["total"].item() == pytest.approx(sum(means), rel=1e-6)
        assert one.read.values["count"].item() == 7
        if workers == 1:
            assert one.read.values["mean"].item() == pytest.approx(mean, rel=1e-6)
