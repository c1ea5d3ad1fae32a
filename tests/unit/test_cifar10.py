"""The CIFAR-10 network, trained by TensorFlow alone."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.models.cifar10 import Cifar10
from grpc_ps.psserver.lead.schedule import schedule
from grpc_ps.psserver.lead.settings import complete


@pytest.fixture(scope="module")
def model() -> Cifar10:
    found = Cifar10()
    found.initialize(7)
    return found


def batch(count: int, seed: int = 1) -> tuple[tf.Tensor, tf.Tensor]:
    rng = np.random.default_rng(seed)
    images = tf.constant(rng.normal(size=(count, 24, 24, 3)), tf.float32)
    return images, tf.constant(rng.integers(0, 10, count), tf.int32)


def test_parameters_and_their_first_values(model: Cifar10) -> None:
    values = {variable.name.removesuffix(":0"): variable.numpy() for variable in model.variables}
    assert {name: value.shape for name, value in values.items()} == {
        "conv1_w": (5, 5, 3, 64),
        "conv1_b": (64,),
        "conv2_w": (5, 5, 64, 64),
        "conv2_b": (64,),
        "local3_w": (2304, 384),
        "local3_b": (384,),
        "local4_w": (384, 192),
        "local4_b": (192,),
        "softmax_w": (192, 10),
        "softmax_b": (10,),
    }
    assert sum(value.size for value in values.values()) == 1_068_298
    biases = {name: set(value.tolist()) for name, value in values.items() if name.endswith("_b")}
    tenth = float(np.float32(0.1))
    assert biases == {
        "conv1_b": {0.0},
        "conv2_b": {tenth},
        "local3_b": {tenth},
        "local4_b": {tenth},
        "softmax_b": {0.0},
    }
    # A normal distribution that is cut at two deviations has 0.88 of the deviation.
    for name, deviation in {"conv1_w": 0.05, "conv2_w": 0.05, "local3_w": 0.04, "local4_w": 0.04}.items():
        assert values[name].std() == pytest.approx(0.8796 * deviation, rel=0.05), name
        assert np.abs(values[name]).max() <= 2 * deviation


def test_first_values_depend_on_the_seed_alone(model: Cifar10) -> None:
    other = Cifar10()
    other.initialize(7)
    assert all(np.array_equal(a, b) for a, b in zip(model.variables, other.variables, strict=True))
    other.initialize(8)
    assert not np.array_equal(model.variables[0], other.variables[0])


def test_the_first_loss_is_the_seeds(model: Cifar10) -> None:
    """The seed prints 4.68 and 4.67: ln 10 and the weight decay of the first values."""
    loss = float(tf.reduce_mean(model.losses(*batch(32))))
    assert 4.66 < loss < 4.69
    metrics = model.metrics(*batch(32))
    assert metrics["loss"].shape == metrics["accuracy"].shape == (32,)
    assert 2.29 < float(tf.reduce_mean(metrics["loss"])) < 2.32


def reference(model: Cifar10, images: tf.Tensor) -> tf.Tensor:
    """The same network in other words: normalisation by its formula, dense layers by sums."""
    values = {variable.name.removesuffix(":0"): variable for variable in model.variables}

    def normalized(x: tf.Tensor) -> tf.Tensor:
        squares = tf.pad(tf.square(x), [[0, 0], [0, 0], [0, 0], [4, 4]])
        sums = tf.add_n([squares[..., shift : shift + x.shape[-1]] for shift in range(9)])
        return x / (1.0 + 0.001 / 9.0 * sums) ** 0.75

    def convolved(x: tf.Tensor, name: str) -> tf.Tensor:
        return tf.nn.relu(tf.nn.convolution(x, values[f"{name}_w"], padding="SAME") + values[f"{name}_b"])

    x = normalized(tf.nn.max_pool2d(convolved(images, "conv1"), 3, 2, "SAME"))
    x = tf.nn.max_pool2d(normalized(convolved(x, "conv2")), 3, 2, "SAME")
    x = tf.reshape(x, [len(images), 2304])
    for name in ("local3", "local4"):
        x = tf.nn.relu(tf.einsum("bi,io->bo", x, values[f"{name}_w"]) + values[f"{name}_b"])
    return tf.einsum("bi,io->bo", x, values["softmax_w"]) + values["softmax_b"]


def test_the_network_is_the_tutorials(model: Cifar10) -> None:
    images, labels = batch(4)
    logits = reference(model, images)
    entropy = -tf.gather(tf.nn.log_softmax(logits), labels, batch_dims=1)
    found = model.metrics(images, labels)
    np.testing.assert_allclose(found["loss"], entropy, rtol=1e-5, atol=1e-5)
    assert found["accuracy"].numpy().tolist() == (np.argmax(logits, axis=1) == labels.numpy()).tolist()


def test_weight_decay_is_in_the_loss(model: Cifar10) -> None:
    images, labels = batch(4)
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_mean(model.losses(images, labels))
        entropy = tf.reduce_mean(model.metrics(images, labels)["loss"])
    for variable in model.variables:
        found, without = (tape.gradient(value, variable) for value in (loss, entropy))
        decay = 0.004 if variable.name.startswith(("local3_w", "local4_w")) else 0.0
        np.testing.assert_allclose(found, without + decay * variable, rtol=1e-4, atol=1e-6, err_msg=variable.name)


def test_training_lowers_the_loss() -> None:
    model = Cifar10()
    model.initialize(1)
    images, labels = batch(16)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model.losses(images, labels))
        for variable, gradient in zip(model.variables, tape.gradient(loss, model.variables), strict=True):
            variable.assign_sub(0.05 * gradient)
        return loss

    losses = [float(step()) for _ in range(12)]
    assert losses[-1] < losses[0] - 0.1


def test_its_settings_are_the_tutorials() -> None:
    defaults = Cifar10.defaults
    settings = complete({"optimizer": defaults.optimizer, "learning_rate": defaults.learning_rate, **defaults.hyper})
    assert (settings["optimizer"], settings["moving_average"], defaults.batch_size) == ("sgd", 0.9999, 128)
    rate = schedule(str(settings["schedule"]), defaults.learning_rate)
    # 350 epochs of 50,000 examples in batches of 128.
    assert [rate(136_717), rate(136_718)] == pytest.approx([0.1, 0.01])
