"""The network of TensorFlow's CIFAR-10 tutorial, which the third seed distributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf

from grpc_ps.models.classification import accuracy_and_loss, classes_and_probabilities, cross_entropy
from grpc_ps.models.spec import ModelDefaults

CLASSES = 10
EXAMPLES = 50_000
BATCH = 128
DECAY = 0.004
"""What half the sum of squares of a hidden dense layer's weights adds to the loss of each example, times this."""


@dataclass(frozen=True)
class _Layer:
    """Weights and biases with their first values: a truncated normal of that deviation, and one number."""

    weights: tf.Variable
    biases: tf.Variable
    deviation: float
    bias: float


def _layer(name: str, shape: list[int], deviation: float, bias: float) -> _Layer:
    weights = tf.Variable(tf.zeros(shape), name=f"{name}_w")
    return _Layer(weights, tf.Variable(tf.zeros(shape[-1:]), name=f"{name}_b"), deviation, bias)


def _normalized(images: tf.Tensor) -> tf.Tensor:
    """Across channels (Krizhevsky et al. 2012, section 3.3)."""
    return tf.nn.lrn(images, depth_radius=4, bias=1.0, alpha=0.001 / 9.0, beta=0.75)


def _pooled(images: tf.Tensor) -> tf.Tensor:
    return tf.nn.max_pool2d(images, ksize=3, strides=2, padding="SAME")


def _convolved(images: tf.Tensor, layer: _Layer) -> tf.Tensor:
    found = tf.nn.conv2d(images, layer.weights, strides=1, padding="SAME")
    return tf.nn.relu(tf.nn.bias_add(found, layer.biases))


def _linear(features: tf.Tensor, layer: _Layer) -> tf.Tensor:
    return tf.nn.bias_add(tf.matmul(features, layer.weights), layer.biases)


class Cifar10:
    """Two convolutions and three dense layers over crops of 24x24 in colour; 1,068,298 parameters in ten of them.

    Its settings are the tutorial's: batches of 128, a rate of 0.1 that falls to a tenth every 350 epochs of the whole
    data set, and a moving average of the parameters for evaluation. 1,000 steps are the seed's.
    """

    name = "cifar10"
    data = "cifar10"
    shown: tuple[str, ...] = ()
    serving = tf.TensorSpec([None, 24, 24, 3], tf.float32, "images")
    defaults = ModelDefaults(
        optimizer="sgd",
        learning_rate=0.1,
        batch_size=BATCH,
        steps=1000,
        hyper={"schedule": f"staircase:{EXAMPLES * 350 // BATCH}:0.1", "moving_average": 0.9999},
    )

    def __init__(self) -> None:
        self._convolutions = (_layer("conv1", [5, 5, 3, 64], 0.05, 0.0), _layer("conv2", [5, 5, 64, 64], 0.05, 0.1))
        self._hidden = (_layer("local3", [6 * 6 * 64, 384], 0.04, 0.1), _layer("local4", [384, 192], 0.04, 0.1))
        self._softmax = _layer("softmax", [192, CLASSES], 1 / 192, 0.0)
        self._layers = (*self._convolutions, *self._hidden, self._softmax)
        self.variables = tuple(variable for layer in self._layers for variable in (layer.weights, layer.biases))

    def initialize(self, seed: int) -> None:
        """Draws the weights; biases are 0, or 0.1 where relu follows and the tutorial has it so."""
        for index, layer in enumerate(self._layers):
            both = tf.constant([seed, index], tf.int64)
            shape = layer.weights.shape
            layer.weights.assign(tf.random.stateless_truncated_normal(shape, seed=both, stddev=layer.deviation))
            layer.biases.assign(tf.fill(layer.biases.shape, layer.bias))

    def _logits(self, images: tf.Tensor) -> tf.Tensor:
        first, second = self._convolutions
        images = _normalized(_pooled(_convolved(images, first)))
        images = _pooled(_normalized(_convolved(images, second)))
        features = tf.reshape(images, [-1, self._hidden[0].weights.shape[0]])
        for layer in self._hidden:
            features = tf.nn.relu(_linear(features, layer))
        return _linear(features, self._softmax)

    def losses(self, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Cross entropy of each example, in nats, and to each the weight decay of the hidden dense layers."""
        decay = DECAY * tf.add_n([tf.nn.l2_loss(layer.weights) for layer in self._hidden])
        return cross_entropy(labels, self._logits(features)) + decay

    def metrics(self, features: tf.Tensor, labels: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Accuracy: 1 where the likeliest class is the label; and the loss, the cross entropy alone."""
        return accuracy_and_loss(labels, self._logits(features))

    def predict(self, features: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """The likeliest of the `classes`, and the `probabilities` of all; images are standardized crops."""
        return classes_and_probabilities(self._logits(features))
