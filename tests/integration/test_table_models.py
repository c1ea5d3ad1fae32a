"""Models with tables: real workers, TensorFlow's gradients, evaluation beside training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from real_worker import train

from grpc_ps.client.shared.errors import DataError, UsageError
from grpc_ps.client.shared.rows import first_values
from grpc_ps.models import DataBundle, ModelDefaults, Table
from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.embedding import Embedding
from grpc_ps.worker.tables import model_specs

ROWS, DIM, EXAMPLES, WORDS = 30, 4, 24, 5


class Bag:
    """A bag of words: the sum of their rows, and a weight for each column."""

    name = "bag"
    shown: tuple[str, ...] = ()
    defaults = ModelDefaults(optimizer="adagrad", learning_rate=0.1, batch_size=6, steps=12)

    def __init__(self) -> None:
        self.tables = {"words": Table(rows=ROWS, dim=DIM, spread=0.5)}
        self.weights = tf.Variable(tf.ones([DIM]), name="weights")
        self.variables = (self.weights,)

    @property
    def data(self) -> Any:
        draw = np.random.default_rng(1)
        words = draw.integers(0, ROWS - 5, (EXAMPLES, WORDS))
        train = ArrayDataset(words, (words.sum(axis=1) % 2).astype(np.float32))
        return lambda directory: DataBundle(train=train, test=train, description="bags")

    def initialize(self, seed: int) -> None:
        self.weights.assign(tf.ones([DIM]))

    def table_ids(self, features: np.ndarray) -> Mapping[str, np.ndarray]:
        return {"words": features}

    def losses(self, features: tf.Tensor, labels: tf.Tensor, rows: Any) -> tf.Tensor:
        return tf.square(self._score(features, rows) - labels)

    def metrics(self, features: tf.Tensor, labels: tf.Tensor, rows: Any) -> Mapping[str, tf.Tensor]:
        return {"error": self.losses(features, labels, rows)}

    def _score(self, features: tf.Tensor, rows: Any) -> tf.Tensor:
        bag = tf.reduce_sum(rows["words"].lookup(features), axis=1)
        return tf.tensordot(bag, self.weights, 1)


class Plain:
    """The same table as a variable, looked up with tf.gather: TensorFlow makes IndexedSlices of its gradient."""

    def __init__(self, words: np.ndarray) -> None:
        self.words = tf.Variable(words)

    def lookup(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.words, ids)


def reference(batches: list[np.ndarray], seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """TensorFlow alone: Adagrad, sparse for the table, on those batches of examples."""
    model = Bag()
    (spec,) = (spec for spec in model_specs(model) if spec.table is not None)
    plain = Plain(first_values(spec, seed, np.arange(ROWS)))
    sums = tf.Variable(tf.fill([ROWS, DIM], 0.1)), tf.Variable(tf.fill([DIM], 0.1))
    data = model.data(None).train
    for indices in batches:
        features, labels = data.take(indices)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model.losses(features, labels, {"words": plain}))
        of_words, of_weights = tape.gradient(loss, [plain.words, model.weights])
        ids, places = tf.unique(of_words.indices)
        summed = tf.math.unsorted_segment_sum(of_words.values, places, tf.size(ids))
        rate = tf.constant(0.1)
        tf.raw_ops.ResourceSparseApplyAdagrad(
            var=plain.words.handle, accum=sums[0].handle, lr=rate, grad=summed, indices=ids
        )
        tf.raw_ops.ResourceApplyAdagrad(var=model.weights.handle, accum=sums[1].handle, lr=rate, grad=of_weights)
    features, labels = data.take(np.arange(EXAMPLES))
    error = float(tf.reduce_mean(model.losses(features, labels, {"words": plain})))
    return plain.words.numpy(), model.weights.numpy(), error


@pytest.mark.parametrize("shards", [1, 2])
def test_training_is_tensorflows_own_with_its_sparse_update(shards: int) -> None:
    from grpc_ps.worker.data import Order

    stated = {"seed": 3, "steps": 20, "eval_every": 20}
    (one,) = train([Bag], shards=shards, stated=stated)
    order = Order(examples=EXAMPLES, batch_size=6, seed=3)
    words, weights, error = reference([order.indices(number) for number in range(20)], 3)
    np.testing.assert_allclose(one.read.values["weights"], weights, rtol=0, atol=1e-6)
    np.testing.assert_allclose(one.rows["words"], words, rtol=0, atol=1e-6)
    assert one.summary["metrics"]["error"] == pytest.approx(error, abs=1e-5)


def test_two_workers_in_rounds_are_one_with_twice_the_batch() -> None:
    (two, _) = train([Bag, Bag], stated={"seed": 3, "steps": 6, "mode": "sync", "workers": 2, "batch_size": 6})
    (one,) = train([Bag], stated={"seed": 3, "steps": 6, "batch_size": 12})
    np.testing.assert_allclose(two.rows["words"], one.rows["words"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("lazy", [0, 1])
def test_the_embedding_comes_nearer_to_one(lazy: int) -> None:
    (one,) = train([lambda: Embedding(rows=5000, dim=8, ids=64, lazy=lazy)], stated={"steps": 30, "seed": 1})
    assert one.summary["loss"] < 0.98


class Wrong(Bag):
    """Looks up what it has not named, or names what is not there."""

    def __init__(self, ids: Any) -> None:
        super().__init__()
        self._ids = ids

    def table_ids(self, features: np.ndarray) -> Mapping[str, np.ndarray]:
        found: Mapping[str, np.ndarray] = self._ids(features)
        return found


@pytest.mark.parametrize(
    ("ids", "error", "said"),
    [
        (lambda features: {"words": features + 100}, DataError, "table words: has no row 1.., only 0 to 29"),
        (lambda features: {"words": -features - 1}, DataError, "table words: has no row -.*, only 0 to 29"),
        (lambda features: {"word": features}, DataError, r"gives ids for \['word'\], the model has the tables"),
        (lambda features: {"words": features / 2}, DataError, "table words: ids are float64, not whole numbers"),
        (lambda features: 1 / 0, DataError, "table_ids: ZeroDivisionError"),
    ],
)
def test_ids_that_cannot_be_end_the_worker(ids: Any, error: type[Exception], said: str) -> None:
    from grpc_ps.worker.tables import needed_rows

    with pytest.raises(error, match=said):
        needed_rows(Wrong(ids), np.arange(10).reshape(2, 5))


def test_tables_that_cannot_be_shared() -> None:
    model = Bag()
    model.tables = {"weights": Table(rows=3, dim=2)}
    with pytest.raises(UsageError, match="a variable and a table are named 'weights'"):
        model_specs(model)
    model.tables = {"words": Table(rows=3, dim=2, push_rows=0)}
    with pytest.raises(UsageError, match="table 'words': push_rows 0 must be from 1"):
        model_specs(model)
