"""A model of one number whose metric is that number: which of its values was evaluated can be read off."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from grpc_ps.models import DataBundle, ModelDefaults
from grpc_ps.models.datasets.arrays import ArrayDataset


def load(directory: Path | None) -> DataBundle:
    examples = ArrayDataset(np.ones(16, np.float32), np.ones(16, np.float32))
    return DataBundle(train=examples, test=examples, description="ones")


class Known:
    """Each update takes the rate away: its gradient is one."""

    name = "known"
    shown: tuple[str, ...] = ()
    defaults = ModelDefaults(optimizer="sgd", learning_rate=0.125, batch_size=4, steps=6)

    def __init__(self) -> None:
        self.w = tf.Variable(0.0, name="w")
        self.variables = (self.w,)
        self.data = load

    def initialize(self, seed: int) -> None:
        self.w.assign(0.0)

    def losses(self, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return features * self.w

    def metrics(self, features: tf.Tensor, labels: tf.Tensor) -> Mapping[str, tf.Tensor]:
        return {"w": features * self.w}
