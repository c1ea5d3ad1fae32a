"""The classifier of the second seed: 784 pixels, hidden layers with relu, ten classes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import tensorflow as tf

from grpc_ps.models.classification import accuracy_and_loss, classes_and_probabilities, cross_entropy
from grpc_ps.models.spec import ModelDefaults

PIXELS = 28 * 28
CLASSES = 10


def _variable(name: str, shape: list[int]) -> tf.Variable:
    return tf.Variable(tf.zeros(shape), name=name)


class Mnist:
    """A perceptron over images of 28x28 in ten classes; parameters `hid_w`, `hid_b` (`hid2_w`, ...), `sm_w`, `sm_b`.

    The seed sums its loss over a batch of 100 and Adagrad's accumulator begins at 0.1. With the mean, gradients are
    100 times smaller and their squares 100^2 times, so 0.1 / 100^2 = 1e-5 gives the seed's updates exactly:
    lr g / sqrt(a + g^2) stays the same when g is scaled by s and a by s^2.

    Args:
        hidden: units in each hidden layer.
        layers: hidden layers, at least one.
    """

    name = "mnist"
    data = "digits"
    shown: tuple[str, ...] = ()
    serving = tf.TensorSpec([None, PIXELS], tf.float32, "pixels")
    defaults = ModelDefaults(
        optimizer="adagrad", learning_rate=0.01, batch_size=100, steps=3000, hyper={"initial_accumulator": 1e-5}
    )

    def __init__(self, hidden: int = 100, layers: int = 1) -> None:
        self.layers: list[tuple[tf.Variable, tf.Variable]] = []
        for layer in range(1, layers + 1):
            prefix = "hid" if layer == 1 else f"hid{layer}"
            inputs = PIXELS if layer == 1 else hidden
            self.layers.append((_variable(f"{prefix}_w", [inputs, hidden]), _variable(f"{prefix}_b", [hidden])))
        self.layers.append((_variable("sm_w", [hidden, CLASSES]), _variable("sm_b", [CLASSES])))
        self.variables = tuple(variable for layer_pair in self.layers for variable in layer_pair)

    def initialize(self, seed: int) -> None:
        """Draws weights from a truncated normal of deviation 1 / sqrt(inputs), as the seed does; biases are zero."""
        for index, (weights, biases) in enumerate(self.layers):
            deviation = 1.0 / math.sqrt(weights.shape[0])
            both = tf.constant([seed, index], tf.int64)
            weights.assign(tf.random.stateless_truncated_normal(weights.shape, seed=both, stddev=deviation))
            biases.assign(tf.zeros(biases.shape))

    def _logits(self, features: tf.Tensor) -> tf.Tensor:
        *hidden, (weights, biases) = self.layers
        for hidden_weights, hidden_biases in hidden:
            features = tf.nn.relu(tf.nn.bias_add(tf.matmul(features, hidden_weights), hidden_biases))
        return tf.nn.bias_add(tf.matmul(features, weights), biases)

    def losses(self, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Cross entropy of each example, in nats."""
        return cross_entropy(labels, self._logits(features))

    def metrics(self, features: tf.Tensor, labels: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Accuracy: 1 where the likeliest class is the label; and the loss."""
        return accuracy_and_loss(labels, self._logits(features))

    def predict(self, features: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """The likeliest of the `classes`, and the `probabilities` of all; pixels are in [0, 1]."""
        return classes_and_probabilities(self._logits(features))
