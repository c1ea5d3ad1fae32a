"""One training step of a model with tables: as `step.Step`, with the gradients of the rows that the batch needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from grpc_ps.client.shared.rows import Ids
from grpc_ps.models import Array
from grpc_ps.worker.device import placed
from grpc_ps.worker.failures import models_own_errors
from grpc_ps.worker.slots import Fed
from grpc_ps.worker.step import batch_signature, check_losses, dense_gradient, direct_call, view_of
from grpc_ps.worker.tables import StepRows
from grpc_ps.worker.tensors import aligned_array, share
from grpc_ps.worker.variables import wire_name


class TableStep:
    """Computes gradients of the trainable variables of a model, and of rows of its tables.

    A row that is looked up several times has the sum of its gradients, made by TensorFlow. Traced once, at the first
    batch, for any number of rows. `name` is what --model says.
    """

    def __init__(self, model: Any, *, name: str = "", device: str | None = None) -> None:
        self._model = model
        self._name = name or type(model).__name__
        self._device = device
        self._tables = sorted(model.tables)
        self._trainable = [variable for variable in model.variables if variable.trainable]
        self._names = [(wire_name(variable), variable.dtype) for variable in self._trainable]
        self._losses_shape = tf.TensorShape(None)
        self._call: Callable[..., Sequence[tf.Tensor]] | None = None

    def __call__(
        self, batch: Fed, ids: Mapping[str, Ids], rows: Mapping[str, Array]
    ) -> tuple[tf.Tensor, dict[str, Array], dict[str, Array]]:
        """The mean loss, gradients by parameter name, and gradients of the rows, in order of the ids, by table.

        The arrays are views of TensorFlow's memory, as those of `step.Step`.
        """
        if self._call is None:
            self._call = self._trace(batch)
        tensors = [_tensor(each[name]) for name in self._tables for each in (ids, rows)]
        loss, *found = self._call(batch.features, batch.labels, *tensors)
        pairs = zip(self._names, found, strict=False)
        gradients = {name: view_of(gradient, dtype) for (name, dtype), gradient in pairs}
        of_rows = zip(self._tables, found[len(self._names) :], strict=True)
        return loss, gradients, {name: view_of(gradient, tf.float32) for name, gradient in of_rows}

    def _trace(self, batch: Fed) -> Callable[..., Sequence[tf.Tensor]]:
        signature = [batch_signature(batch.features), batch_signature(batch.labels)]
        for name in self._tables:
            signature += [
                tf.TensorSpec([None], tf.int64),
                tf.TensorSpec([None, self._model.tables[name].dim], tf.float32),
            ]
        with models_own_errors(self._name):
            concrete: Any = tf.function(self._compute, input_signature=signature).get_concrete_function()
        check_losses(self._name, self._losses_shape)
        host_only = self._device is None and all(each.device.endswith("CPU:0") for each in self._model.variables)
        return direct_call(concrete) if host_only else concrete

    def _compute(self, features: tf.Tensor, labels: tf.Tensor, *tensors: tf.Tensor) -> list[tf.Tensor]:
        values = tensors[1::2]
        with placed(self._device):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([*self._trainable, *values])
                rows = {
                    name: StepRows(name, ids, each)
                    for name, ids, each in zip(self._tables, tensors[::2], values, strict=True)
                }
                losses = self._model.losses(features, labels, rows)
                self._losses_shape = losses.shape
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, [*self._trainable, *values])
            own, of_rows = gradients[: len(self._trainable)], gradients[len(self._trainable) :]
            dense = [dense_gradient(each, variable) for each, variable in zip(own, self._trainable, strict=True)]
            summed = [_summed(each, rows) for each, rows in zip(of_rows, values, strict=True)]
        return [loss, *dense, *summed]


def _tensor(array: Array) -> tf.Tensor:
    """The array as a tensor; a copy in aligned memory takes a fifth of the time that TensorFlow's own copy takes."""
    shared = share(array)
    if shared is None and array.size:
        aligned = aligned_array(array.shape, array.dtype)
        aligned[...] = array
        shared = share(aligned)
    return tf.convert_to_tensor(array) if shared is None else shared


def _summed(gradient: Any, rows: tf.Tensor) -> tf.Tensor:
    """The gradient of the rows, one for each; of rows that are looked up several times the sum."""
    return tf.zeros_like(rows) if gradient is None else tf.convert_to_tensor(gradient)
