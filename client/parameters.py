"""A job's parameters in this process's memory, and how they lie in each shard's images."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.blocks import FLOATING, ParameterSpec, Placement
from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.client.shared.image import (
    Bytes,
    Layout,
    aligned_buffer,
    gradients_layout,
    numpy_dtype,
    values_layout,
)

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ShardImages:
    """Both images of one shard; `destinations` has the bytes of each block of `values` in the arrays."""

    values: Layout
    gradients: Layout
    destinations: tuple[Bytes, ...]


class Parameters:
    """All parameters as arrays, 64-byte aligned, that are overwritten in place by what the shards send.

    Everything that depends on shapes and placement alone is worked out here once, not in each step.
    """

    def __init__(
        self, specs: Sequence[ParameterSpec], placement: Placement, names: Collection[str] | None = None
    ) -> None:
        """Makes zeroed arrays for the parameters of those names, all by default. What comes for others is dropped."""
        self.specs = {spec.name: spec for spec in specs}
        self._fitting = {spec.name: (spec, numpy_dtype(spec.dtype)) for spec in specs}
        self._floating = {name: fit for name, fit in self._fitting.items() if fit[0].dtype in FLOATING}
        flat = {name: aligned_buffer(s.nbytes) for name, s in self.specs.items() if names is None or name in names}
        self.arrays: dict[str, Array] = {
            name: memory.view(numpy_dtype(self.specs[name].dtype)).reshape(self.specs[name].shape)
            for name, memory in flat.items()
        }
        self.shards = tuple(
            _images(values_layout(blocks), gradients_layout(blocks), flat) for blocks in placement.shards
        )

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


def _images(values: Layout, gradients: Layout, flat: Mapping[str, Bytes]) -> ShardImages:
    destinations = tuple(
        flat[block.parameter][block.byte_span] if block.parameter in flat else np.empty(block.nbytes, np.uint8)
        for block in values.blocks
    )
    return ShardImages(values, gradients, destinations)


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
