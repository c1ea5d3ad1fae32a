"""How a Keras model becomes one for the cluster: names, first values, loss, metrics, dropout, optimizers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_models import cnn, first_values, images

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.models import ModelError
from grpc_ps.models.keras_model import KerasModel
from grpc_ps.models.keras_optimizers import optimizer_defaults
from grpc_ps.worker.evaluator import Evaluator
from grpc_ps.worker.settings import default_settings
from grpc_ps.worker.slots import Fed
from grpc_ps.worker.step import Step
from grpc_ps.worker.variables import parameter_specs, read_values


def names(model: KerasModel) -> list[str]:
    return [spec.name for spec in parameter_specs(model.variables)]


def fed(number: int, count: int = 8) -> Fed:
    features, labels = images(0)
    return Fed(number, count, tf.constant(features[:count]), tf.constant(labels[:count]))


def test_names_do_not_depend_on_what_was_made_before() -> None:
    first, second = names(KerasModel(cnn(norm=True))), names(KerasModel(cnn(norm=True)))
    assert first == second
    assert first[:2] == ["conv2d/kernel", "conv2d/bias"] or first[0].endswith("/kernel")
    assert "batch_normalization/moving_mean" in first
    assert [spec.trainable for spec in parameter_specs(KerasModel(cnn(norm=True)).variables)].count(False) == 2


class Twins(keras.Model):
    """Two layers of one name, and a weight without any."""

    def __init__(self) -> None:
        super().__init__()
        self.one = keras.layers.Dense(2, name="same")
        self.two = keras.layers.Dense(2, name="same")
        self.scale = self.add_weight(shape=(2,), initializer="ones")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.one(x) + self.two(x) * self.scale


def test_layers_of_one_name_are_told_apart_and_a_subclassed_model_is_built_by_its_data() -> None:
    model = KerasModel(Twins())
    with pytest.raises(ModelError, match="has no weights yet: give it an Input layer"):
        _ = model.variables
    model.fit_to(np.ones((1, 3), np.float32), np.ones((1, 2), np.float32))
    found = names(model)
    assert len(set(found)) == 5
    assert {name.rpartition("/")[2] for name in found} == {"kernel", "bias", "kernel_1", "bias_1", "variable"}
    again = KerasModel(Twins())
    again.fit_to(np.ones((1, 3), np.float32), np.ones((1, 2), np.float32))
    assert names(again) == found


def test_first_values_come_from_the_seed_alone_and_leave_the_programs_generators_as_they_are() -> None:
    np.random.seed(7)
    state = np.random.get_state()[1].tolist()
    one, two, other = (read_values(first_values(cnn, seed).variables) for seed in (5, 5, 6))
    assert np.random.get_state()[1].tolist() == state
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert not np.array_equal(one["dense/kernel"], other["dense/kernel"])


def test_a_layer_that_is_frozen_has_no_gradient() -> None:
    model = cnn()
    model.layers[1].trainable = False
    adapter = KerasModel(model)
    adapter.fit_to(images(0)[0][:1], images(0)[1][:1])
    assert [spec.name for spec in parameter_specs(adapter.variables) if spec.trainable] == [
        "dense/kernel",
        "dense/bias",
    ]
    assert list(Step(adapter)(fed(0))[1]) == ["dense/kernel", "dense/bias"]


def test_the_loss_is_keras_own_with_what_regularizers_add() -> None:
    adapter = first_values(cnn, 1)
    loss, _ = Step(adapter)(fed(0))
    features, labels = images(0)
    expected = adapter.keras.evaluate(features[:8], labels[:8], verbose=0, return_dict=True)["loss"]
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    penalty = 0.01 * float(np.square(read_values(adapter.variables)["conv2d/kernel"]).sum())
    assert penalty > 1e-3
    assert float(loss) > penalty


def test_dropouts_masks_follow_from_seed_and_batch_number_alone() -> None:
    adapter = first_values(lambda: cnn(dropout=True), 1)
    assert adapter.wants_seed
    step = Step(adapter)
    one, again, other = (float(step(fed(number))[0]) for number in (3, 3, 4))
    assert one == again != other
    step.seed = 9
    assert float(step(fed(3))[0]) != one
    assert not first_values(cnn, 1).wants_seed


def test_metrics_are_fed_batch_by_batch_and_read_once() -> None:
    def make() -> keras.Model:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
        model.compile(loss="binary_crossentropy", metrics=["accuracy", keras.metrics.AUC(name="auc")])
        return model

    generator = np.random.default_rng(0)
    features = generator.random((2500, 4), dtype=np.float32)
    labels = (features.sum(axis=1, keepdims=True) > 2).astype(np.float32)
    from grpc_ps.models.datasets.arrays import ArrayDataset

    held_out = ArrayDataset(features, labels)
    adapter = KerasModel(make(), make)
    adapter.fit_to(features[:1], labels[:1])
    evaluate = Evaluator(adapter, held_out)
    assert evaluate.names() == ["accuracy", "auc", "loss"]
    values = {name: value + 0.1 for name, value in read_values(adapter.variables).items()}
    found = [evaluate(values) for _ in range(2)]
    expected = adapter.keras.evaluate(features, labels, batch_size=1000, verbose=0, return_dict=True)
    assert found[0] == found[1] == pytest.approx(expected, abs=1e-6)


def test_a_model_that_is_not_compiled_gets_the_loss_that_its_data_leaves_no_doubt_about() -> None:
    def fitted(labels: Any, *layers: Any) -> Any:
        adapter = KerasModel(keras.Sequential([keras.Input((4,)), *layers]))
        adapter.fit_to(np.ones((1, 4), np.float32), labels)
        return adapter.keras.loss

    classes, number = np.zeros(1, np.int64), np.zeros((1, 1), np.float32)
    logits = fitted(classes, keras.layers.Dense(3))
    chances = fitted(classes, keras.layers.Dense(3, activation="softmax"))
    assert (logits.name, logits.get_config()["from_logits"]) == ("sparse_categorical_crossentropy", True)
    assert chances.get_config()["from_logits"] is False
    within = fitted(classes, keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")]))
    assert within.get_config()["from_logits"] is False
    function = fitted(classes, keras.layers.Dense(3), keras.layers.Lambda(tf.nn.softmax))
    assert function.get_config()["from_logits"] is False
    one = number[:, 0]
    assert fitted(number, keras.layers.Dense(1)).name == fitted(one, keras.layers.Dense(1)).name == "mean_squared_error"
    for labels, outputs in ((classes, 1), (one, 3), (number, 3)):
        with pytest.raises(ModelError, match="may have several losses: compile it with one"):
            fitted(labels, keras.layers.Dense(outputs))


def test_rows_of_pixels_become_the_images_that_the_model_takes() -> None:
    adapter = KerasModel(cnn())
    features, labels = images(0)
    rows = features.reshape(len(features), -1)
    adapter.fit_to(rows[:1], labels[:1])
    loss, _ = Step(adapter)(Fed(0, 8, tf.constant(rows[:8]), tf.constant(labels[:8])))
    assert float(loss) == pytest.approx(float(Step(adapter)(fed(0))[0]))
    with pytest.raises(ModelError, match=r"^does not take examples of float32\[7\]: "):
        KerasModel(cnn()).fit_to(np.ones((1, 7), np.float32), labels[:1])


class OwnStep(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


def test_what_cannot_be_trained_as_it_is_says_why() -> None:
    two = keras.Input((1,)), keras.Input((1,))
    both = keras.Model(two, keras.layers.Add()(list(two)))
    bounded = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_constraint="non_neg")])
    with pytest.raises(ModelError, match="has 2 inputs, and a batch has features and labels, one array each"):
        KerasModel(both)
    with pytest.raises(ModelError, match="has a train_step of its own"):
        KerasModel(OwnStep())
    with pytest.raises(ModelError, match=r"constraint of 'sequential/dense/kernel'"):
        _ = KerasModel(bounded).variables


CASES = [
    (keras.optimizers.SGD(0.5), "sgd", 0.5, {}),
    (keras.optimizers.SGD(0.1, momentum=0.5, nesterov=True), "momentum", 0.1, {"momentum": 0.5, "nesterov": True}),
    (keras.optimizers.Adagrad(0.2, initial_accumulator_value=0.3), "adagrad", 0.2, {"initial_accumulator": 0.3}),
    (keras.optimizers.Adam(), "adam", 0.001, {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}),
    (
        keras.optimizers.AdamW(0.01, clipnorm=2.0),
        "adamw",
        0.01,
        {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7, "weight_decay": 0.004, "clip_norm": 2.0},
    ),
    (keras.optimizers.RMSprop(rho=0.8), "rmsprop", 0.001, {"rho": 0.8, "momentum": 0.0, "epsilon": 1e-7}),
    (
        keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.5),
        "ftrl",
        0.1,
        {"initial_accumulator": 0.1, "l1": 0.5, "l2": 0.0},
    ),
    (
        keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.3, 100, 0.9, staircase=True)),
        "sgd",
        0.3,
        {"schedule": "staircase:100:0.9"},
    ),
    (
        keras.optimizers.SGD(keras.optimizers.schedules.PiecewiseConstantDecay([10, 20], [1.0, 0.5, 0.1])),
        "sgd",
        1.0,
        {"schedule": "piecewise:10=0.5,20=0.1"},
    ),
    (
        keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.3, 50, alpha=0.1)),
        "sgd",
        0.3,
        {"schedule": "cosine:50:0.1"},
    ),
]


@pytest.mark.parametrize(("optimizer", "name", "rate", "hyper"), CASES)
def test_the_optimizer_of_compile_is_the_jobs_default(optimizer: Any, name: str, rate: float, hyper: Any) -> None:
    found = optimizer_defaults(optimizer)
    assert (found.optimizer, found.learning_rate, dict(found.hyper), found.unsupported) == (name, rate, hyper, "")


@pytest.mark.parametrize(
    ("optimizer", "why"),
    [
        (keras.optimizers.Nadam(), "there are SGD, Adagrad, Adam, AdamW, RMSprop, Ftrl"),
        (keras.optimizers.Adam(amsgrad=True), "amsgrad=True"),
        (keras.optimizers.SGD(use_ema=True, ema_momentum=0.9), "use_ema=True; .* give --moving-average 0.9"),
        (keras.optimizers.SGD(keras.optimizers.schedules.PolynomialDecay(0.1, 10)), "a PolynomialDecay, there are"),
    ],
)
def test_an_optimizer_without_counterpart_has_to_be_replaced(optimizer: Any, why: str) -> None:
    found = optimizer_defaults(optimizer)
    with pytest.raises(UsageError, match=f"cannot run on the shards: .*{why}.*; state one with --optimizer"):
        default_settings({}, found)
    assert default_settings({"optimizer": "adam"}, found)["batch_size"] == 32
