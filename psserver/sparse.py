"""Tables of one shard: rows are updated by TensorFlow's fused training kernels, and read at one position of the log."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

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

# Bytes of an element.
_ITEM = 4


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
        gradient, variables = operands.load(table, places, rows.values), operands.variables
        slots = {name: variables[name] for name in self._rule.slots}
        self._rule.update(variables[VALUES], slots, gradient, learning_rate, self._updates)
        results = operands.results(len(rows.ids))
        table.write(places, results)
        return all_finite(results[VALUES].reshape(-1))


class _Operands:
    """What the kernel works on: as many rows as an update has, flat, in memory that is used again.

    The variables are TensorFlow's own, and rows are written into their memory: a kernel copies every other memory
    before it begins. Nobody else holds that memory meanwhile, and a kernel works in place, so it stays where it was
    when it was last looked at, which is behind each kernel.

    There are some rows too many, without a gradient: what is in them does not matter, and no element of an update is
    among those that a kernel does one by one at an end. These may differ in the last bit, and which rows are last
    depends on the number of shards.
    """

    def __init__(self, dim: int, names: Sequence[str]) -> None:
        self.variables: dict[str, tf.Variable] = {}
        self._dim = dim
        self._names = names
        self._room = 0
        self._written: dict[str, Array] = {}

    def load(self, table: TableMemory, places: Places, gradient: Array) -> tf.Tensor:
        """Makes the variables what is at those places; returns the gradient beside them."""
        count = len(places)
        if not 0.7 * self._room <= count <= self._room:
            self._make(count + count // 8)
        for name, memory in self._written.items():
            table.take(name, places, self._rows_of(memory, count))
        self._rows_of(self._gradient, count)[...] = gradient
        self._gradient[count * self._dim :] = 0
        return self._operand

    def _make(self, rows: int) -> None:
        self._room = rows
        size = padded(rows * self._dim * _ITEM) // _ITEM
        for name in self._names:
            # Not zeros made by a constant, which others might hold.
            first = tf.raw_ops.Empty(shape=[size], dtype=tf.float32, init=True)
            self.variables[name] = tf.Variable(first, trainable=False)
        self._gradient = aligned_buffer(size * _ITEM).view(np.float32)
        self._operand = tensor_of(self._gradient)
        self._written = {}
        del first
        self.results(0)

    def _rows_of(self, memory: Array, count: int) -> Array:
        return memory[: count * self._dim].reshape(count, self._dim)

    def results(self, count: int) -> dict[str, Array]:
        """What the kernel has made of so many rows, by name: to be let go before the next ones are loaded."""
        found = {}
        for name, variable in self.variables.items():
            tensor = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
            array = np.asarray(memoryview(tensor))
            if name not in self._written or self._written[name].ctypes.data != array.ctypes.data:
                self._written[name] = _writable(array)
            found[name] = self._rows_of(array, count)
        return found


def _writable(array: Array) -> Array:
    """The same memory, not kept alive by this."""
    memory = (ctypes.c_byte * array.nbytes).from_address(array.ctypes.data)
    return np.ctypeslib.as_array(memory).view(array.dtype)
