"""Gradients are TensorFlow's own, handed on without copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.models.datasets import digits
from grpc_ps.models.mnist import Mnist
from grpc_ps.worker.slots import Fed
from grpc_ps.worker.step import Step


class Toy:
    """Variables by name and a loss; whatever else a model has, the step does not look at."""

    def __init__(self, losses: Callable[..., tf.Tensor], **variables: tf.Variable) -> None:
        self.variables = tuple(variables.values())
        self.losses = losses


def variable(value: object, name: str, dtype: tf.DType = tf.float32, trainable: bool = True) -> tf.Variable:
    return tf.Variable(tf.constant(value, dtype), name=name, trainable=trainable)


def fed(features: object, labels: object) -> Fed:
    return Fed(0, len(np.asarray(labels)), tf.constant(features), tf.constant(labels))


def test_gradients_are_tensorflows_own() -> None:
    model = Mnist(hidden=16, layers=2)
    model.initialize(1)
    pixels, classes = digits.load().train.take(np.arange(60))
    batch = fed(pixels.astype(np.float32) / 255, classes)
    with tf.GradientTape() as tape:
        mean = tf.reduce_mean(model.losses(batch.features, batch.labels))
    expected = tape.gradient(mean, list(model.variables))
    loss, gradients = Step(model)(batch)
    assert float(loss) == pytest.approx(float(mean), rel=1e-6)
    assert list(gradients) == ["hid_w", "hid_b", "hid2_w", "hid2_b", "sm_w", "sm_b"]
    for each, found in zip(expected, gradients.values(), strict=True):
        np.testing.assert_allclose(found, each.numpy(), rtol=1e-5, atol=1e-7)
        assert found.flags.c_contiguous
        assert not found.flags.owndata


def test_a_short_batch_is_not_traced_anew() -> None:
    traced = []
    w = variable([2.0], "w")

    def losses(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        traced.append(features.shape)
        return w * features - labels

    step = Step(Toy(losses, w=w))
    assert step(fed([1.0, 2.0, 6.0], [0.0, 0.0, 0.0]))[1]["w"].tolist() == [3.0]
    assert step(fed([1.0, 2.0], [0.0, 0.0]))[1]["w"].tolist() == [1.5]
    assert traced == [[None]]


def test_no_gradient_is_zeros_and_indexed_slices_become_dense() -> None:
    table, unused = variable(np.ones((4, 2)), "table"), variable([5.0, 6.0], "unused")
    step = Step(Toy(lambda ids, labels: tf.reduce_sum(tf.gather(table, ids), axis=1) * labels, table=table, u=unused))
    gradients = step(fed([1, 3, 1], [2.0, 4.0, 8.0]))[1]
    np.testing.assert_allclose(gradients["table"], [[0, 0], [10 / 3] * 2, [0, 0], [4 / 3] * 2], rtol=1e-6)
    assert gradients["unused"].tolist() == [0, 0]


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16"])
def test_every_floating_type(name: str) -> None:
    dtype = tf.as_dtype(name)
    w, scalar = variable([1.0, 2.0], "w", dtype), variable(3.0, "scalar", dtype)
    step = Step(Toy(lambda x, y: tf.cast(x, dtype) * tf.reduce_sum(w) * scalar, w=w, scalar=scalar))
    gradients = step(fed([1.0, 3.0], [0.0, 0.0]))[1]
    expected = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
    assert {each.dtype for each in gradients.values()} == {expected}
    assert gradients["w"].astype(float).tolist() == [6, 6]
    assert gradients["scalar"].shape == ()
    assert float(gradients["scalar"]) == 6


def test_variables_that_are_not_trainable_have_no_gradient() -> None:
    w, seen = variable([1.0], "w"), variable([0.0], "seen", trainable=False)

    def losses(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        seen.assign_add([1.0])
        return w * features + seen

    assert list(Step(Toy(losses, w=w, seen=seen))(fed([1.0], [0.0]))[1]) == ["w"]
    assert seen.numpy().tolist() == [1.0]


@pytest.mark.parametrize(("axis", "shape"), [(None, r"\(\)"), ("column", r"\(None, None\)")])
def test_a_loss_that_is_not_per_example_is_refused(axis: str | None, shape: str) -> None:
    w = variable([1.0], "w")

    def losses(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        error = w * features - labels
        return tf.reduce_sum(error) if axis is None else error - labels[:, tf.newaxis]

    says = rf"^--model Toy: its losses have shape {shape}, expected one loss per example: \[batch\]$"
    with pytest.raises(UsageError, match=says):
        Step(Toy(losses, w=w))(fed([1.0, 2.0], [0.0, 0.0]))


def test_an_error_in_a_users_model_is_one_line_with_its_place() -> None:
    def losses(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        if tf.reduce_sum(features) > 0:
            labels = labels + 1
        raise ValueError("oops,\n  twice")

    line = losses.__code__.co_firstlineno + 3
    step = Step(Toy(losses, w=variable([2.0], "w")), name="own.py:Broken")
    with pytest.raises(UsageError) as refused:
        step(fed([1.0], [0.0]))
    text = f"--model own.py:Broken: ValueError: oops, twice ({Path(__file__).name}, line {line})"
    assert str(refused.value) == text


def test_the_place_of_an_error_in_tensorflow_is_where_the_model_calls_it() -> None:
    def losses(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return tf.matmul(features, labels)

    place = rf"\({Path(__file__).name}, line {losses.__code__.co_firstlineno + 1}\)"
    with pytest.raises(UsageError, match=rf"^--model own\.py:Broken: ValueError: .* {place}$"):
        Step(Toy(losses, w=variable([2.0], "w")), name="own.py:Broken")(fed([1.0], [0.0]))


def test_an_error_in_one_of_our_models_stays_a_bug() -> None:
    def losses(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        raise ValueError("oops")

    with pytest.raises(ValueError, match="oops"):
        Step(Toy(losses, w=variable([2.0], "w")), name="mnist")(fed([1.0], [0.0]))
