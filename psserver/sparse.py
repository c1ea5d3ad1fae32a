"""Tables of one shard: rows are updated by TensorFlow's fused training kernels, and read at one position of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.image import aligned_buffer, padded
from grpc_ps.client.shared.rows import Array, Rows
from grpc_ps.protos import job_pb2
from grpc_ps.psserver.finite import all_finite
from grpc_ps.psserver.optimizers import plain_rule
from grpc_ps.psserver.row_index import Places
from grpc_ps.psserver.store import tensor_of
from grpc_ps.psserver.table_memory import VALUES, TableMemory

_GRADIENT = "gradient"


class Tables:
    """The tables of one shard, in order of their names.

    Every update rule works on each element alone. So the rows that have a gradient are taken out, go through the kernel
    that the job's optimizer has for blocks, and are put back: that is what TensorFlow's sparse kernels compute, for
    every rule that there is. Rows without a gradient cost nothing and stay as they are, their slots too.

    Not guarded: the replay alone calls it, one call at a time.

    Attributes:
        memory: of each table.

    Args:
        specs: the tables.
        settings: the job's.
        shard, shard_count: which rows are this shard's.
        updates: how many there have been.
    """

    def __init__(
        self, specs: Sequence[ParameterSpec], settings: job_pb2.Settings, shard: int, shard_count: int, updates: int = 0
    ) -> None:
        self._rule = plain_rule(settings)
        firsts = {name: first or 0.0 for name, first in self._rule.slots.items()}
        self.memory = [
            TableMemory(spec, firsts, seed=settings.seed, shard=shard, shard_count=shard_count) for spec in specs
        ]
        self._updates = updates
        self._operands = [_Operands(spec.shape[1], (VALUES, *self._rule.slots)) for spec in specs]

    def apply(self, gradients: Sequence[Rows], learning_rate: float) -> str:
        """Updates the rows that have a gradient. Returns the name of a table with a result that is not finite, if any.

        Raises:
            Full: a lazy table has no room for a new row.
        """
        bad = ""
        for table, operands, rows in zip(self.memory, self._operands, gradients, strict=True):
            if len(rows.ids) and not self._apply(table, operands, rows, learning_rate):
                bad = bad or table.spec.name
        self._updates += 1
        return bad

    def _apply(self, table: TableMemory, operands: _Operands, rows: Rows, learning_rate: float) -> bool:
        places = table.places(rows.ids)
        variables, gradient = operands.load(table, places, rows.values)
        slots = {name: variables[name] for name in self._rule.slots}
        self._rule.update(variables[VALUES], slots, gradient, learning_rate, self._updates)
        results = {name: _array_of(variable, rows.values.shape) for name, variable in variables.items()}
        table.write(places, results)
        return all_finite(results[VALUES].reshape(-1))


class _Operands:
    """What the kernel works on: as many rows as an update has, flat, in memory that is used again.

    Filled up to whole cache lines, so that no element is among those that a kernel does one by one at an end: these may
    differ in the last bit, and which rows are last depends on the number of shards. What is there does not matter.
    """

    def __init__(self, dim: int, names: Sequence[str]) -> None:
        self._dim = dim
        self._variables = {
            name: tf.Variable(tf.zeros([0]), shape=tf.TensorShape([None]), trainable=False) for name in names
        }
        self._memory: dict[str, Array] = {}

    def load(self, table: TableMemory, places: Places, gradient: Array) -> tuple[Mapping[str, tf.Variable], tf.Tensor]:
        """Makes the variables what is at those places; returns them, and the gradient beside them."""
        count = len(places)
        for name, variable in self._variables.items():
            flat, rows = self._room(name, count)
            table.take(name, places, rows)
            tf.raw_ops.AssignVariableOp(resource=variable.handle, value=tensor_of(flat))
        flat, rows = self._room(_GRADIENT, count)
        rows[...] = gradient
        return self._variables, tensor_of(flat)

    def _room(self, name: str, count: int) -> tuple[Array, Array]:
        """Memory for so many rows: all of it, and the rows in it."""
        size = count * self._dim
        whole = padded(size * 4) // 4
        memory = self._memory.get(name)
        if memory is None or len(memory) < whole:
            memory = self._memory[name] = aligned_buffer(2 * whole * 4).view(np.float32)
        return memory[:whole], memory[:size].reshape(count, self._dim)


def _array_of(variable: tf.Variable, shape: tuple[int, ...]) -> Array:
    tensor = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
    return np.asarray(memoryview(tensor))[: shape[0] * shape[1]].reshape(shape)
