"""Rows of a large table are pulled towards 1: nothing but lookups and updates, to measure them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import tensorflow as tf

from grpc_ps.models.datasets import zipf
from grpc_ps.models.spec import Array, Lookup, ModelDefaults, Table


class Embedding:
    """One table `emb`; an example is some ids, its loss the mean squared distance of their rows from its label, 1.

    Args:
        rows, dim: extents of the table.
        ids: ids of one example.
        lazy: 1 for a table of which shards hold only the rows that were updated.
    """

    name = "embedding"
    shown: tuple[str, ...] = ()
    variables: tuple[tf.Variable, ...] = ()
    defaults = ModelDefaults(optimizer="adagrad", learning_rate=0.01, batch_size=1, steps=1000)

    def __init__(self, rows: int = 1_000_000, dim: int = 64, ids: int = 4096, lazy: int = 0) -> None:
        self.tables = {"emb": Table(rows=rows, dim=dim, lazy=bool(lazy))}
        self.data = partial(zipf.load, rows=rows, ids=ids)

    def initialize(self, seed: int) -> None:
        """Does nothing: the shards give rows their first values."""

    def table_ids(self, features: Array) -> Mapping[str, Array]:
        """The features themselves."""
        return {"emb": features}

    def losses(self, features: tf.Tensor, labels: tf.Tensor, rows: Mapping[str, Lookup]) -> tf.Tensor:
        """Mean squared distance of each example's rows from its label."""
        found = rows["emb"].lookup(features)
        return tf.reduce_mean(tf.square(found - labels[:, tf.newaxis, tf.newaxis]), axis=[1, 2])

    def metrics(self, features: tf.Tensor, labels: tf.Tensor, rows: Mapping[str, Lookup]) -> Mapping[str, tf.Tensor]:
        """The same distance."""
        return {"loss": self.losses(features, labels, rows)}
