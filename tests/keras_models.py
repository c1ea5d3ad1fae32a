"""Small Keras models and data for the tests, and training of them by one process that knows no cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from grpc_ps.models import Array, DataBundle
from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.keras_model import KerasModel
from grpc_ps.worker.data import Order

EXAMPLES, CLASSES = 96, 3


def images(seed: int = 0) -> tuple[Array, Array]:
    """Images of 6x6 with one colour, in three classes by where they are bright."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, EXAMPLES).astype(np.int32)
    features = generator.random((EXAMPLES, 6, 6, 1), dtype=np.float32)
    for index, label in enumerate(labels):
        features[index, 2 * label : 2 * label + 2] += 1
    return features, labels


def cnn(*, norm: bool = False, dropout: bool = False) -> keras.Model:
    """A network as people write them: functional, compiled, unaware of who trains it."""
    inputs = keras.Input((6, 6, 1))
    found = keras.layers.Conv2D(4, 3, kernel_regularizer="l2")(inputs)
    if norm:
        found = keras.layers.BatchNormalization(momentum=0.9)(found)
    found = keras.layers.Activation("relu")(found)
    found = keras.layers.Flatten()(keras.layers.MaxPooling2D()(found))
    if dropout:
        found = keras.layers.Dropout(0.5)(found)
    model = keras.Model(inputs, keras.layers.Dense(CLASSES)(found))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss=loss, metrics=["accuracy"])
    return model


def data(directory: object = None) -> DataBundle:
    """Training and test set."""
    train, test = ArrayDataset(*images(0)), ArrayDataset(*images(1))
    return DataBundle(train=train, test=test, description="bright rows")


def adapted(make: Callable[[], keras.Model]) -> Callable[[], KerasModel]:
    """What makes the model for a worker."""
    return lambda: KerasModel(make(), make, data)


def first_values(make: Callable[[], keras.Model], seed: int) -> KerasModel:
    """A model with the values that a job of that seed begins with."""
    model = adapted(make)()
    model.fit_to(*ArrayDataset(*images(0)).take(np.arange(1)))
    _ = model.variables
    model.initialize(seed)
    return model


def by_hand(model: keras.Model, *, steps: int, parts: int, batch_size: int, seed: int) -> None:
    """Trains as `parts` workers in rounds do: the mean of their gradients, and of what they do to the statistics."""
    order = Order(examples=EXAMPLES, batch_size=batch_size, seed=seed)
    features, labels = images(0)
    state = model.non_trainable_weights
    for step in range(steps):
        before = [each.numpy() for each in state]
        gradients, deltas = [], []
        for part in range(parts):
            chosen = order.indices(step * parts + part)
            gradients.append(_gradients(model, features[chosen], labels[chosen]))
            deltas.append([each.numpy() - old for each, old in zip(state, before, strict=True)])
            for each, old in zip(state, before, strict=True):
                each.assign(old)
        model.optimizer.apply_gradients(zip(_means(gradients), model.trainable_weights, strict=True))
        for each, old, delta in zip(state, before, _means(deltas), strict=True):
            each.assign(old + delta)


@tf.function(reduce_retracing=True)
def _computed(model: Any, features: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        loss = model.compute_loss(x=features, y=labels, y_pred=model(features, training=True))
    return tape.gradient(loss, [each.value for each in model.trainable_weights])  # type: ignore[no-any-return]


def _gradients(model: keras.Model, features: Array, labels: Array) -> list[Array]:
    found = _computed(model, tf.constant(features), tf.constant(labels))
    return [each.numpy() for each in found]


def _means(rows: Sequence[Sequence[Array]]) -> list[Array]:
    return [np.mean(column, axis=0, dtype=np.float32) for column in zip(*rows, strict=True)]


def assert_close(model: KerasModel, values: Mapping[str, Array], tolerance: float) -> None:
    """The model's values and those read from a cluster are the same within the tolerance."""
    from grpc_ps.worker.variables import read_values

    ours = read_values(model.variables)
    assert ours.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_allclose(value, ours[name], atol=tolerance, rtol=0, err_msg=name)
