"""The models, trained by TensorFlow alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from grpc_ps import models
from grpc_ps.models.datasets import digits, line
from grpc_ps.models.linear import Linear
from grpc_ps.models.mnist import Mnist
from grpc_ps.models.spec import Dataset, Model


def values(model: Model) -> dict[str, np.ndarray]:
    return {variable.name.removesuffix(":0"): variable.numpy() for variable in model.variables}


def gradients(model: Model, features: object, labels: object) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model.losses(tf.convert_to_tensor(features), tf.convert_to_tensor(labels)))
    found: list[tf.Tensor] = tape.gradient(loss, list(model.variables))
    return found


def test_listing_models_imports_no_tensorflow() -> None:
    code = "import sys; from grpc_ps import models; print(sorted(models.MODELS), 'tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "['cifar10', 'embedding', 'linear', 'mnist'] False\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mnits", "unknown model 'mnits', did you mean 'mnist'? known models: cifar10, embedding, linear, mnist"),
        ("MNIST", "unknown model 'MNIST', did you mean 'mnist'? known models: cifar10, embedding, linear, mnist"),
        ("resnet", "unknown model 'resnet'; known models: cifar10, embedding, linear, mnist"),
    ],
)
def test_b09_unknown_model_lists_the_known_ones(name: str, text: str) -> None:
    with pytest.raises(models.UnknownModelError) as caught:
        models.load(name)
    assert str(caught.value) == text


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_the_registry_says_what_the_model_says(name: str) -> None:
    entry = models.entry(name)
    model = models.load(name)(**{key: argument.lowest for key, argument in entry.arguments.items()})
    assert model.name == name
    # A model may have data of its own, made to its measures.
    assert callable(model.data) or model.data == entry.data
    assert set(model.shown) <= set(values(model))


def test_parameter_names_of_mnist() -> None:
    shapes = {"hid_w": (784, 100), "hid_b": (100,), "sm_w": (100, 10), "sm_b": (10,)}
    assert {name: value.shape for name, value in values(Mnist()).items()} == shapes
    deep = values(Mnist(hidden=7, layers=3))
    assert list(deep) == ["hid_w", "hid_b", "hid2_w", "hid2_b", "hid3_w", "hid3_b", "sm_w", "sm_b"]
    assert deep["hid_w"].shape == (784, 7)
    assert deep["hid3_w"].shape == (7, 7)
    assert deep["sm_w"].shape == (7, 10)


@pytest.mark.parametrize("make", [Linear, Mnist, lambda: Mnist(hidden=5, layers=2)])
def test_initial_values_depend_on_the_seed_alone(make: type[Model]) -> None:
    one, two = make(), make()
    one.initialize(2**40 + 7)
    two.initialize(1)
    first = values(two)
    two.initialize(2**40 + 7)
    for name, value in values(one).items():
        assert np.array_equal(value, values(two)[name])
    assert any(not np.array_equal(value, values(two)[name]) for name, value in first.items())


def test_initial_values_of_mnist_are_the_seeds() -> None:
    model = Mnist()
    model.initialize(0)
    found = values(model)
    # A normal cut at two deviations has 0.8796 of the deviation.
    assert found["hid_w"].std() == pytest.approx(0.8796 / 28, rel=0.02)
    assert np.abs(found["hid_w"]).max() <= 2 / 28
    assert found["sm_w"].std() == pytest.approx(0.8796 / 10, rel=0.1)
    assert not found["hid_b"].any()
    assert not found["sm_b"].any()


def test_linear_begins_within_one() -> None:
    model = Linear()
    starts = []
    for seed in range(50):
        model.initialize(seed)
        starts.append(float(model.w.numpy()[0]))
    assert -1 <= min(starts) < -0.8
    assert 0.8 < max(starts) < 1
    assert float(model.b.numpy()[0]) == 0


@pytest.mark.parametrize("age", [0, 1, 4])
def test_linear_reaches_its_line_in_its_default_steps(age: int) -> None:
    """Also with gradients that are `age` steps old, as with that many other workers."""
    model = Linear()
    model.initialize(0)
    generator = np.random.default_rng(0)
    waiting: list[list[tf.Tensor]] = []
    for _ in range(model.defaults.steps):
        waiting.append(gradients(model, *line.Line().draw(generator, model.defaults.batch_size)))
        if len(waiting) > age:
            for variable, gradient in zip(model.variables, waiting.pop(0), strict=True):
                variable.assign_sub(model.defaults.learning_rate * gradient)
    assert model.w.numpy()[0] == pytest.approx(0.1, abs=0.0005)
    assert model.b.numpy()[0] == pytest.approx(0.3, abs=0.0005)


def test_the_mean_with_its_accumulator_makes_the_seeds_updates() -> None:
    """Sum with accumulator 0.1 and mean with 0.1 / 100^2, after one step and after two."""
    model, accumulator = Mnist(hidden=4), Mnist.defaults.hyper["initial_accumulator"]
    model.initialize(0)
    bundle = digits.load()
    assert isinstance(bundle.train, Dataset)
    pixels, classes = bundle.train.take(np.arange(100))
    mean = [g.numpy() for g in gradients(model, pixels.astype(np.float32) / 255, classes)]
    for gradient in mean:
        ours = gradient / np.sqrt(accumulator + gradient**2)
        seeds = 100 * gradient / np.sqrt(0.1 + (100 * gradient) ** 2)
        np.testing.assert_allclose(ours, seeds, rtol=1e-5, atol=1e-6)


def test_mnist_loss_and_accuracy() -> None:
    model = Mnist(hidden=2)
    model.variables[-1].assign([0, 0, 0, 1, 0, 0, 0, 0, 0, 0])
    features, expected = tf.zeros([3, 784]), tf.constant([3, 0, 3])
    total = float(np.log(9 + np.e))
    losses = model.losses(features, expected).numpy().tolist()
    assert losses == pytest.approx([total - 1, total, total - 1], rel=1e-6)
    assert model.metrics(features, expected)["accuracy"].numpy().tolist() == [1, 0, 1]


def test_mnist_learns_the_digits() -> None:
    model, bundle = Mnist(), digits.load()
    assert isinstance(bundle.train, Dataset)
    assert bundle.test is not None
    model.initialize(0)
    squares = [tf.Variable(tf.fill(v.shape, 1e-5)) for v in model.variables]
    step = tf.function(lambda features, labels: gradients(model, features, labels))
    order = np.random.default_rng(0)
    for _ in range(300):
        pixels, classes = bundle.train.take(order.integers(0, bundle.train.examples, 100))
        found = step(tf.constant(pixels.astype(np.float32) / 255), tf.constant(classes))
        for variable, square, gradient in zip(model.variables, squares, found, strict=True):
            square.assign_add(gradient**2)
            variable.assign_sub(0.01 * gradient / tf.sqrt(square))
    pixels, classes = bundle.test.take(np.arange(bundle.test.examples))
    metrics = model.metrics(tf.constant(pixels.astype(np.float32) / 255), tf.constant(classes))
    assert metrics["accuracy"].numpy().mean() > 0.93


@pytest.mark.parametrize("name", ["cifar10", "linear", "mnist"])
def test_our_models_can_be_served(name: str) -> None:
    model = models.load(name)()
    assert isinstance(model, models.Predicts)
    features = tf.zeros([2, *model.serving.shape[1:]], model.serving.dtype)
    assert {len(found) for found in model.predict(features).values()} == {2}
