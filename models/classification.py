"""What classifiers of ours have in common."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """That of each example, in nats, shape [batch]; `logits` are [batch, classes]."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def accuracy_and_loss(labels: tf.Tensor, logits: tf.Tensor) -> Mapping[str, tf.Tensor]:
    """Of each example: 1 where the likeliest class is the label; and the cross entropy."""
    classes = tf.argmax(logits, axis=1, output_type=labels.dtype)
    return {"accuracy": tf.cast(tf.equal(classes, labels), tf.float32), "loss": cross_entropy(labels, logits)}


def classes_and_probabilities(logits: tf.Tensor) -> Mapping[str, tf.Tensor]:
    """Of each example the likeliest of the `classes`, and the `probabilities` of all."""
    return {"classes": tf.argmax(logits, axis=1), "probabilities": tf.nn.softmax(logits)}
