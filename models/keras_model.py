"""A Keras model as it is, trained: Sequential, functional or subclassed, compiled or not.

Loss and metrics are Keras's own: `compute_loss` with whatever layers add, and `test_step`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from grpc_ps.models.keras_names import layer_names, weight_names
from grpc_ps.models.keras_optimizers import optimizer_defaults
from grpc_ps.models.optional import ModelError, named
from grpc_ps.models.spec import Array, DataLoader, ModelDefaults

_SEED_STATE = "seed_generator_state"
_ONE_ARRAY = "a batch has features and labels, one array each"


class KerasModel:
    """Adapts a `keras.Model` to `spec.Model` and what `optional` has.

    Non-trainable weights (batch normalization's statistics) are shared as such; metrics' variables are the process's
    own, and so are the states of seed generators (dropout): the step sets them. A layer that is frozen stays so.

    Args:
        model: what is trained.
        remake: makes another one like it, for first values from a seed; None keeps the values that the model has.
        data: as in `spec.Model`; None where there is none, and the embedded digits have to do.

    Attributes:
        has_no_data: whether `data` is but what has to do.

    Raises:
        ModelError: the model does in its own way what the cluster does.
    """

    shown: tuple[str, ...] = ()

    def __init__(
        self,
        model: keras.Model,
        remake: Callable[[], keras.Model] | None = None,
        data: str | DataLoader | None = None,
    ) -> None:
        _check(model)
        self.keras = model
        self.name = layer_names(model).get(model.name, model.name)
        self.data = "digits" if data is None else data
        self.has_no_data = data is None
        self._remake = remake
        self._example: Array | None = None
        self._variables: tuple[tf.Variable, ...] = ()
        self._seeds: list[tf.Variable] = []

    def fit_to(self, features: Array, labels: Array) -> None:
        """Builds a model that was not, by calling it, and chooses the loss of one that was not compiled with one."""
        self._example = features
        with _described(features):
            outputs = self._call(tf.convert_to_tensor(features), training=False)
        if not tf.is_tensor(outputs):
            raise ModelError(f"returns a {type(outputs).__name__}, and {_ONE_ARRAY}")
        needs_loss = not self.keras.losses and type(self.keras).compute_loss is keras.Model.compute_loss
        if self.keras.compiled and self.keras.loss is None and needs_loss:
            raise ModelError("is compiled without a loss: compile it with one")
        if not self.keras.compiled:
            loss = _default_loss(outputs, labels) if needs_loss else None
            classes = isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
            self.keras.compile(loss=loss, metrics=["accuracy"] if classes else None)
        # Keras makes the variables of metrics when they are fed for the first time, which must not be in a trace.
        with _described(features):
            self.update_metrics(tf.convert_to_tensor(features), tf.convert_to_tensor(labels))
        self.reset_metrics()

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """See `spec.Model`. Raises ModelError for a model that is not built."""
        if not self._variables:
            self._variables = tuple(self._named_weights())
            self._seeds = [each.value for each in self.keras.variables if each.name == _SEED_STATE]
        return self._variables

    def _named_weights(self) -> list[tf.Variable]:
        if not self.keras.built or not self.keras.weights:
            raise ModelError("has no weights yet: give it an Input layer, or data of which an example can be had")
        trainable = {id(weight) for weight in self.keras.trainable_weights}
        found = []
        for weight, name in zip(self.keras.weights, weight_names(self.keras), strict=True):
            if weight.constraint is not None and id(weight) in trainable:
                raise ModelError(
                    f"the constraint of {name!r} cannot be kept: shards apply the updates; use a regularizer"
                )
            variable = weight.value
            # Keras freezes its own variable, and leaves TensorFlow's as it was made.
            variable._trainable = id(weight) in trainable
            found.append(named(variable, name))
        return found

    @property
    def defaults(self) -> ModelDefaults:
        """What the model was compiled with, or Keras's defaults."""
        return optimizer_defaults(getattr(self.keras, "optimizer", None) or keras.optimizers.RMSprop())

    def initialize(self, seed: int) -> None:
        """Makes the model once more with every generator of random numbers at `seed`, and takes those values."""
        if self._remake is None:
            return
        states = random.getstate(), np.random.get_state()
        try:
            keras.utils.set_random_seed(seed % 2**32)
            other = self._remake()
            if not other.built:
                other(self._shaped(tf.convert_to_tensor(self._example)))
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
        for ours, theirs in zip(self.keras.weights, other.weights, strict=True):
            ours.assign(theirs)

    @property
    def wants_seed(self) -> bool:
        """Whether a layer draws: dropout, noise, augmentation."""
        return bool(self.variables and self._seeds)

    def set_seed(self, seed: tf.Tensor) -> None:
        """Gives every seed generator of the model a state of its own."""
        states = tf.random.stateless_uniform([len(self._seeds), 2], seed, minval=None, maxval=None, dtype=tf.int64)
        for index, variable in enumerate(self._seeds):
            variable.assign(tf.cast(states[index], variable.dtype))

    def batch_loss(self, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The loss that `fit` minimizes: with the reduction of its losses, and all that layers add."""
        features = self._shaped(features)
        outputs = self._call(features, training=True)
        loss = self.keras.compute_loss(x=features, y=labels, y_pred=outputs, sample_weight=None)
        return tf.cast(loss, tf.float32)

    def losses(self, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The batch's loss for each example: Keras has none for one alone."""
        return tf.fill([tf.shape(labels)[0]], self.batch_loss(features, labels))

    def metrics(self, features: tf.Tensor, labels: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Nothing: see `update_metrics`."""
        return {}

    def reset_metrics(self) -> None:
        """As `evaluate` does at its start."""
        self.keras.reset_metrics()

    def update_metrics(self, features: tf.Tensor, labels: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """What `evaluate` shows after this batch: the loss, and the metrics of `compile` that are single numbers."""
        found = self.keras.test_step((self._shaped(features), labels))
        return {name: value for name, value in found.items() if value.shape.rank == 0}

    @property
    def serving(self) -> tf.TensorSpec:
        """See `optional.Predicts`."""
        inputs = _tensors(self.keras, "inputs") or [np.asarray(self._example)]
        return tf.TensorSpec([None, *inputs[0].shape[1:]], inputs[0].dtype)

    def predict(self, features: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """What the model returns in use."""
        return {"outputs": self._call(features, training=False)}

    def _call(self, features: tf.Tensor, *, training: bool) -> tf.Tensor:
        return self.keras(self._shaped(features), training=training)

    def _shaped(self, features: tf.Tensor) -> tf.Tensor:
        """The features in the shape of the model's input: rows of 784 pixels, say, as images of 28x28x1."""
        inputs = _tensors(self.keras, "inputs")
        wanted, has = list(inputs[0].shape[1:]) if inputs else [], list(features.shape[1:])
        known = bool(wanted) and None not in wanted and None not in has
        fits = known and wanted != has and np.prod(wanted) == np.prod(has)
        return tf.reshape(features, [-1, *wanted]) if fits else features


def _check(model: keras.Model) -> None:
    if keras.backend.backend() != "tensorflow":
        raise ModelError(f"Keras runs on {keras.backend.backend()}: set KERAS_BACKEND=tensorflow")
    if type(model).train_step is not keras.Model.train_step:
        raise ModelError("has a train_step of its own, which nobody would call: put the loss into compute_loss")
    for what in ("inputs", "outputs"):
        tensors = _tensors(model, what)
        if len(tensors) > 1:
            raise ModelError(f"has {len(tensors)} {what}, and {_ONE_ARRAY}")


def _tensors(model: keras.Model, what: str) -> list[Any]:
    """The model's symbolic inputs or outputs; none if it is subclassed, or not built."""
    try:
        return list(getattr(model, what))
    except (AttributeError, ValueError):
        return []


def _default_loss(outputs: tf.Tensor, labels: Array) -> keras.losses.Loss:
    """The loss that outputs and labels leave no doubt about: classes by their numbers, or numbers."""
    shape = list(outputs.shape[1:])
    wanted = list(labels.shape[1:])
    if np.issubdtype(labels.dtype, np.integer) and shape and wanted == shape[:-1] and shape[-1] > 1:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=not _are_chances(outputs))
    if np.issubdtype(labels.dtype, np.floating) and shape in (wanted, [*wanted, 1]):
        return keras.losses.MeanSquaredError()
    kinds = f"outputs {shape} for labels {labels.dtype.name}{wanted}"
    raise ModelError(f"is not compiled, and {kinds} may have several losses: compile it with one")


def _are_chances(outputs: tf.Tensor) -> bool:
    """Whether they are those of a softmax, wherever in the model that is: none is negative, and they add up to one."""
    values = tf.cast(outputs, tf.float32).numpy()
    rounding = 1e-5 if outputs.dtype == tf.float32 else 0.02
    return bool((values >= 0).all() and (np.abs(values.sum(axis=-1) - 1) < rounding).all())


@contextmanager
def _described(features: Array) -> Iterator[None]:
    """Says in one line what the model was given, where it does not take that."""
    try:
        yield
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        given = f"{features.dtype.name}{list(features.shape[1:])}"
        # Keras writes in bold, for terminals, and TensorFlow names the node of its graph.
        text = " ".join(re.sub(r"\x1b\[[0-9;]*m|\{\{function_node [^}]*\}\}", "", str(error)).split())
        raise ModelError(f"does not take examples of {given}: {text}; other data: --data FILE.py:FUNCTION") from error
