"""Input pipelines of tf.data as data sets: each worker runs one of its own, which prepares batches ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.spec import Array, Batch

Pipeline = Callable[[Mapping[str, int]], tf.data.Dataset]
"""Makes the pipeline, given `batch_size`, `seed`, `share` and `shares` for functions that take them."""


class TfData:
    """A `spec.StreamDataset` of a pipeline whose elements are examples or batches: (features, labels).

    Elements are batches where features and labels begin with one and the same length, or one that is not known;
    else the job's batch size makes batches of them. Of the pipeline that a function makes without taking `share`,
    each worker uses every `shares`-th element.
    """

    examples = 0

    def __init__(self, pipeline: Pipeline, *, name: str, shared: bool = False, shares: int = 1) -> None:
        self._pipeline = pipeline
        self._name = name
        self._shared = shared
        self._shares = shares
        self._spec = element_spec(pipeline(_arguments(1, 0, 0, 1)))
        self.fingerprint = f"tf.data {name} {[(str(each.dtype.name), str(each.shape)) for each in self._spec]}"

    def among(self, shares: int) -> TfData:
        """The same data, shared out among so many workers."""
        return TfData(self._pipeline, name=self._name, shared=self._shared, shares=shares)

    def batches(self, batch_size: int, seed: int, share: int) -> Iterable[Batch]:
        """See `spec.StreamDataset`. A worker beyond the shares, of whom nobody knew, has one that somebody has too.

        Sets TensorFlow's global seed, which a `shuffle` without one of its own follows.
        """
        # One order for all who take every n-th element of it, or their shares would overlap; where each reads all of
        # it, an order for each.
        tf.random.set_seed(seed if self._shares > 1 else seed + share)
        share %= self._shares
        pipeline = self._pipeline(_arguments(batch_size, seed, share, self._shares))
        if not self._shared and self._shares > 1:
            pipeline = pipeline.shard(self._shares, share)
        if not is_batched(self._spec):
            pipeline = pipeline.batch(batch_size)
        batches: Iterable[Batch] = pipeline.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
        return batches

    def example(self) -> Batch:
        """Zeros in the form of a batch of one example."""
        features, labels = (_zeros(each, is_batched(self._spec)) for each in self._spec)
        return features, labels


def _arguments(batch_size: int, seed: int, share: int, shares: int) -> Mapping[str, int]:
    return {"batch_size": batch_size, "seed": seed, "share": share, "shares": shares}


def element_spec(pipeline: tf.data.Dataset) -> tuple[tf.TensorSpec, tf.TensorSpec]:
    """The types and shapes of features and labels.

    Raises:
        TypeError: the elements are something else.
    """
    spec = pipeline.element_spec
    if not isinstance(spec, tuple) or [type(each) for each in spec] != [tf.TensorSpec] * 2:
        raise TypeError(f"elements of the tf.data.Dataset must be (features, labels), two tensors; they are {spec}")
    return spec


def is_batched(spec: tuple[tf.TensorSpec, tf.TensorSpec]) -> bool:
    """Whether elements of this form are batches."""
    if not all(each.shape.rank for each in spec):
        return False
    lengths = {each.shape[0] for each in spec}
    return len(lengths) == 1


def _zeros(spec: tf.TensorSpec, batched: bool) -> Array:
    inner = spec.shape[1:] if batched else spec.shape
    return np.zeros([1, *(length or 1 for length in inner)], spec.dtype.as_numpy_dtype)


def in_memory(pipeline: tf.data.Dataset) -> ArrayDataset:
    """All examples of a pipeline that ends.

    Raises:
        ValueError: it does not, or has none.
    """
    spec = element_spec(pipeline)
    if pipeline.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError("a tf.data.Dataset to test with must end, and this one repeats for ever")
    batches = list((pipeline if is_batched(spec) else pipeline.batch(1000)).as_numpy_iterator())
    if not batches:
        raise ValueError("a tf.data.Dataset to test with has no examples")
    features, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return ArrayDataset(features, labels)


def is_pipeline(value: Any) -> bool:
    """Whether the value is of tf.data."""
    return isinstance(value, tf.data.Dataset)
