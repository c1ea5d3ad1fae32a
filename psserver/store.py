"""The values of a shard with their slots, as TensorFlow variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from grpc_ps.client.shared.checkpoint_format import AVERAGE
from grpc_ps.client.shared.image import ALIGNMENT, Layout, Region, numpy_dtype
from grpc_ps.protos import job_pb2
from grpc_ps.psserver.checkpoint import BlockState
from grpc_ps.psserver.optimizers import Rule, rule_for
from grpc_ps.psserver.regions import RegionValues, assembled, gap_of

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
    """A region with its variable and slots."""

    region: Region
    variable: Any
    slots: Mapping[str, Any]


class Store:
    """The values and optimizer state of one shard: a variable and its slots for each region of the image of values.

    Not guarded: the replay alone calls it, one call at a time. `read` is cheap and gives a consistent snapshot: the
    kernels copy a variable's buffer before they write to it while somebody else holds it.

    Args:
        layout: the image of values.
        first: for each region its first values, and slots where there are any; copied. Other slots begin as the
            optimizer says.
        settings: the job's; they name the optimizer.
        updates: how many there have been.
    """

    def __init__(
        self, layout: Layout, first: Sequence[RegionValues], settings: job_pb2.Settings, updates: int = 0
    ) -> None:
        self._rule: Rule = rule_for(settings)
        self._held = [_hold(region, values, self._rule) for region, values in zip(layout.regions, first, strict=True)]
        self._updated = [held for held in self._held if held.region.floating]
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
        """Updates every floating region once with its gradient (its delta, if it is not trainable)."""
        for held, gradient in zip(self._updated, operands, strict=True):
            if held.region.trainable:
                self._rule.update(held.variable, held.slots, gradient, learning_rate, self.updates)
            else:
                held.variable.assign_add(gradient)
        self.updates += 1

    def read(self, *, averages: bool = False) -> list[memoryview]:
        """Returns every region's bytes as they are now; later updates do not change them. Nothing is copied.

        With `averages`, those of a region's moving average where it has one.
        """
        return [_bytes_of(held.slots.get(AVERAGE, held.variable) if averages else held.variable) for held in self._held]

    def state(self) -> list[BlockState]:
        """Returns every block's bytes and those of its slots, as `read` does."""
        return [state for held in self._held for state in _states(held)]


def _states(held: _Held) -> Iterator[BlockState]:
    value = _bytes_of(held.variable)
    slots = {name: _bytes_of(slot) for name, slot in held.slots.items()}
    for block, start in zip(held.region.blocks, held.region.starts, strict=True):
        span = slice(start, start + block.nbytes)
        yield BlockState(block, value[span], {name: data[span] for name, data in slots.items()})


def _bytes_of(variable: Any) -> memoryview:
    tensor = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
    if variable.dtype == tf.bfloat16:
        # The buffer protocol has no code for bfloat16.
        tensor = tf.bitcast(tensor, tf.uint16)
    return memoryview(tensor).cast("B")


def _hold(region: Region, first: RegionValues, rule: Rule) -> _Held:
    slots = rule.slots if region.trainable and region.floating else {}
    return _Held(
        region,
        _variable(first.value),
        {
            name: _variable(first.slots[name]) if name in first.slots else _slot(region, name, fill, first.value)
            for name, fill in slots.items()
        },
    )


def _variable(value: Array) -> Any:
    return tf.Variable(tf.convert_to_tensor(value), trainable=False)


def _slot(region: Region, name: str, first: float | None, value: Array) -> Any:
    if first is None:
        return _variable(value)
    if gap_of(name, first) != first:
        blocks = [np.full(block.size, first, numpy_dtype(block.dtype)) for block in region.blocks]
        return _variable(assembled(region, blocks, gap_of(name, first)))
    return tf.Variable(tf.fill([region.size], tf.constant(first, region.dtype)), trainable=False)
