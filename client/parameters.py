"""A job's parameters in this process's memory, and how they lie in each shard's images."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.blocks import FLOATING, Block, ParameterSpec, Placement
from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.client.shared.image import (
    Bytes,
    Layout,
    aligned_buffer,
    gradients_layout,
    numpy_dtype,
    values_layout,
)
from grpc_ps.client.shared.rows import tables_of
from grpc_ps.client.shared.wire_form import WireForm, narrow_values

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ShardImages:
    """The images of one shard.

    Attributes:
        blocks: the shard's, of the placement.
        values, gradients: the two images; `released` is that of the values as they come, the same object where nothing
            is rounded.
        destinations: each block of `released` in the arrays: its bytes, or elements of float32 that it is widened to.
    """

    blocks: tuple[Block, ...]
    values: Layout
    gradients: Layout
    released: Layout
    destinations: tuple[Array, ...]


class Parameters:
    """All parameters as arrays, 64-byte aligned, that are overwritten in place by what the shards send.

    Everything that depends on shapes and placement alone is worked out here once, not in each step.

    Attributes:
        specs: the parameters by name, but for tables; `tables` has those.
    """

    def __init__(
        self,
        specs: Sequence[ParameterSpec],
        placement: Placement,
        names: Collection[str] | None = None,
        form: WireForm | None = None,
    ) -> None:
        """Makes zeroed arrays for the parameters of those names, all by default. What comes for others is dropped.

        `form` is that in which values come, as they are by default.
        """
        self.tables = tables_of(specs)
        specs = [spec for spec in specs if spec.table is None]
        self.specs = {spec.name: spec for spec in specs}
        self._fitting = {spec.name: (spec, numpy_dtype(spec.dtype)) for spec in specs}
        self._floating = {name: fit for name, fit in self._fitting.items() if fit[0].dtype in FLOATING}
        flat = {name: aligned_buffer(s.nbytes) for name, s in self.specs.items() if names is None or name in names}
        self.arrays: dict[str, Array] = {
            name: memory.view(numpy_dtype(self.specs[name].dtype)).reshape(self.specs[name].shape)
            for name, memory in flat.items()
        }
        self.shards = tuple(_images(blocks, form or WireForm(), flat) for blocks in placement.shards)

    def flatten(self, tensors: Mapping[str, Any], *, values: bool) -> dict[str, memoryview]:
        """Returns the bytes of tensors by name, without a copy where they are in order in memory already.

        `values` asks for all parameters, else the floating-point ones (gradients). An array that is not C-contiguous or
        not little-endian is copied. Raises InvalidPush, naming the parameter, for a name, shape or type that does not
        fit and for a missing one: nothing is broadcast or converted.
        """
        wanted = self._fitting if values else self._floating
        if tensors.keys() != wanted.keys():
            missing, unknown = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
            raise InvalidPush("; ".join(_named("missing", missing) + _named("not a parameter of the push", unknown)))
        return {name: _bytes_of(*fit, tensors[name]) for name, fit in wanted.items()}


def block_buffers(layout: Layout, flat: Mapping[str, memoryview]) -> list[memoryview]:
    """Returns the bytes of each block of a layout out of the whole parameters' bytes."""
    return [flat[block.parameter][block.byte_span] for block in layout.blocks]


def _images(blocks: tuple[Block, ...], form: WireForm, flat: Mapping[str, Bytes]) -> ShardImages:
    values = values_layout(blocks)
    released = narrow_values(blocks, form) if form.lossy else values
    destinations: list[Array] = []
    for block, wire in zip(values.blocks, released.blocks, strict=True):
        memory = flat[block.parameter][block.byte_span] if block.parameter in flat else np.empty(block.nbytes, np.uint8)
        destinations.append(memory if block.dtype == wire.dtype else memory.view(numpy_dtype(block.dtype)))
    return ShardImages(blocks, values, gradients_layout(blocks), released, tuple(destinations))


def _named(what: str, names: Sequence[str]) -> list[str]:
    return [f"{what}: {', '.join(names)}"] if names else []


def _bytes_of(spec: ParameterSpec, dtype: np.dtype[Any], tensor: Any) -> memoryview:
    if isinstance(tensor, (np.ndarray, np.generic)):
        return _bytes_of_array(spec, dtype, np.asarray(tensor))
    view = memoryview(tensor)
    # A flat buffer of bytes has lost its shape; anything else says its own.
    shape = spec.shape if view.format == "B" and view.ndim == 1 else view.shape or ()
    if shape != spec.shape or view.nbytes != spec.nbytes:
        raise _unfit(spec, f"{view.nbytes} bytes of shape {shape}")
    if not view.c_contiguous:
        return memoryview(view.tobytes())
    return view.cast("B") if view.nbytes else memoryview(b"")


def _bytes_of_array(spec: ParameterSpec, dtype: np.dtype[Any], array: Array) -> memoryview:
    if array.shape != spec.shape or (array.dtype != dtype and array.dtype.newbyteorder("<") != dtype):
        raise _unfit(spec, f"{array.dtype.name} {array.shape}")
    if array.dtype != dtype or not array.flags.c_contiguous:
        array = array.astype(dtype, order="C")
    return array.reshape(-1).view(np.uint8).data


def _unfit(spec: ParameterSpec, got: str) -> InvalidPush:
    return InvalidPush(f"parameter {spec.name}: expected {spec.dtype} {spec.shape}, got {got}")
