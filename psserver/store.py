"""The blocks of a shard with their slots, as TensorFlow variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from grpc_ps.client.shared.blocks import Block
from grpc_ps.client.shared.image import ALIGNMENT
from grpc_ps.protos import job_pb2
from grpc_ps.psserver.checkpoint import BlockState, BlockValues
from grpc_ps.psserver.optimizers import Rule, rule_for

Array = npt.NDArray[Any]


def configure_tensorflow(threads: int) -> None:
    """Hides every GPU and sets the threads of one kernel.

    Raises:
        RuntimeError: TensorFlow is at work in this process already, with a GPU.
    """
    try:
        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    except RuntimeError:
        # Another part of this process has made tensors before: all that matters is that no GPU is in reach.
        if tf.config.get_visible_devices("GPU"):
            raise


def tensor_of(array: Array) -> Any:
    """Returns a tensor over the array's own memory where TensorFlow can use that, else a copy.

    TensorFlow takes foreign memory only at a multiple of 64 bytes (it aborts the process at other places), and
    does not take bfloat16 at all: that goes through as 16-bit integers.
    """
    if array.dtype == ml_dtypes.bfloat16:
        return tf.bitcast(tensor_of(array.view(np.uint16)), tf.bfloat16)
    if array.dtype == np.bool_ or array.ctypes.data % ALIGNMENT or not array.flags.writeable or not array.size:
        return tf.convert_to_tensor(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


@dataclass(frozen=True, slots=True)
class _Held:
    """A block with its variable and slots."""

    block: Block
    variable: Any
    slots: dict[str, Any]


class Store:
    """The values and optimizer state of one shard.

    Not guarded: the replay alone calls it, one call at a time. `read` is cheap and gives a consistent snapshot: the
    kernels copy a variable's buffer before they write to it while somebody else holds it.

    Args:
        blocks: the shard's blocks, in order of the image of values.
        values: their first values, and slots where there are any; copied. Other slots begin as the optimizer says.
        settings: the job's; they name the optimizer.
        updates: how many there have been.
    """

    def __init__(
        self, blocks: Sequence[Block], values: Sequence[BlockValues], settings: job_pb2.Settings, updates: int = 0
    ) -> None:
        self._rule: Rule = rule_for(settings)
        self._held = [_hold(block, first, self._rule) for block, first in zip(blocks, values, strict=True)]
        self._updated = [held for held in self._held if held.block.floating]
        self.updates = updates

    @staticmethod
    def slots_of(settings: job_pb2.Settings) -> tuple[str, ...]:
        """Names of the slots that the job's optimizer keeps beside a block."""
        return tuple(rule_for(settings).slots)

    def operands(self, gradients: Sequence[Array]) -> list[Any]:
        """Returns tensors over the memory of gradients, for `apply`; they follow what is written there later.

        Raises:
            ValueError: TensorFlow cannot use that memory: it is not aligned.
        """
        if any(gradient.ctypes.data % ALIGNMENT for gradient in gradients):
            raise ValueError(f"gradients must begin at multiples of {ALIGNMENT} bytes")
        return [tensor_of(gradient) for gradient in gradients]

    def apply(self, operands: Sequence[Any], learning_rate: float) -> None:
        """Updates every floating block once with its gradient (its delta, if it is not trainable)."""
        for held, gradient in zip(self._updated, operands, strict=True):
            if held.block.trainable:
                self._rule.update(held.variable, held.slots, gradient, learning_rate, self.updates)
            else:
                held.variable.assign_add(gradient)
        self.updates += 1

    def read(self) -> list[memoryview]:
        """Returns every block's bytes as they are now; later updates do not change them. Nothing is copied."""
        return [_bytes_of(held.variable) for held in self._held]

    def state(self) -> list[BlockState]:
        """Returns every block's bytes and those of its slots, as `read` does."""
        return [
            BlockState(
                held.block,
                _bytes_of(held.variable),
                {name: _bytes_of(slot) for name, slot in held.slots.items()},
            )
            for held in self._held
        ]


def _bytes_of(variable: Any) -> memoryview:
    tensor = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
    if variable.dtype == tf.bfloat16:
        # The buffer protocol has no code for bfloat16.
        tensor = tf.bitcast(tensor, tf.uint16)
    return memoryview(tensor).cast("B")


def _hold(block: Block, first: BlockValues, rule: Rule) -> _Held:
    variable = _variable(first.value)
    slots = {}
    if block.trainable and block.floating:
        slots = {
            name: _variable(first.slots[name]) if name in first.slots else _slot(block, fill, variable.dtype)
            for name, fill in rule.slots.items()
        }
    return _Held(block, variable, slots)


def _variable(value: Array) -> Any:
    return tf.Variable(tf.convert_to_tensor(value), trainable=False)


def _slot(block: Block, first: float, dtype: Any) -> Any:
    return tf.Variable(tf.fill([block.size], tf.constant(first, dtype)), trainable=False)
