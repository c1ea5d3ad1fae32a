"""The model's variables beside the session's arrays, which every release overwrites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from grpc_ps.client import ParameterSpec
from grpc_ps.client.shared.blocks import ITEM_BYTES
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.models import Array
from grpc_ps.worker.tensors import share


def wire_name(variable: tf.Variable) -> str:
    """The variable's name as a parameter: TensorFlow's, or the one that the model gave it (`models.optional.named`)."""
    name: str = getattr(variable, "wire_name", None) or variable.name
    return name.removesuffix(":0")


def parameter_specs(variables: Sequence[tf.Variable]) -> tuple[ParameterSpec, ...]:
    """Describes a model's variables to the cluster.

    Raises:
        UsageError: a name is used twice, a shape is not known, or a type cannot travel.
    """
    names = [wire_name(variable) for variable in variables]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not names:
        what = f"several variables are named {twice[0]!r}" if twice else "it has no variables"
        raise UsageError(f"the model cannot be shared: {what}")
    return tuple(_spec(variable) for variable in variables)


def _spec(variable: tf.Variable) -> ParameterSpec:
    name, dtype = wire_name(variable), variable.dtype.name
    if dtype not in ITEM_BYTES or (variable.trainable and not variable.dtype.is_floating):
        kind = "trainable variable" if variable.trainable else "variable"
        raise UsageError(f"the model cannot be shared: {kind} {name!r} has type {dtype}")
    if not variable.shape.is_fully_defined():
        raise UsageError(f"the model cannot be shared: variable {name!r} has shape {variable.shape}")
    return ParameterSpec(name=name, shape=tuple(variable.shape), dtype=dtype, trainable=variable.trainable)


def read_values(variables: Sequence[tf.Variable]) -> dict[str, Array]:
    """Copies of the variables' values by name."""
    return {wire_name(variable): variable.numpy() for variable in variables}


def bind(variable: tf.Variable, array: Array) -> bool:
    """Makes the variable use the array's memory, so that writing to the array changes the variable.

    TensorFlow keeps the buffer that is assigned, but does not promise it; so it is tried, and False means that it did
    not. The array must outlive the variable, and nothing else may assign to the variable.
    """
    tensor = share(array) if variable.device.endswith("CPU:0") else None
    if tensor is None:
        return False
    variable.assign(tensor)
    return _follows(variable, array)


def _follows(variable: tf.Variable, array: Array) -> bool:
    first = array.reshape(-1)[:1]
    kept = first.copy()
    probe = 1 if kept[0] != 1 else 0
    first[0] = probe
    follows = bool(variable.numpy().reshape(-1)[0] == probe)
    first[:] = kept
    return follows


class Variables:
    """Keeps a model's variables equal to a session's arrays, without a copy where that is possible.

    Variables that are not trainable may be assigned to by the step, so they are always copied; what the step changed
    in them is their delta.
    """

    def __init__(self, variables: Sequence[tf.Variable], arrays: Mapping[str, Array]) -> None:
        pairs = [(variable, arrays[wire_name(variable)]) for variable in variables]
        bound = [variable.trainable and bind(variable, array) for variable, array in pairs]
        self._copied = [pair for pair, is_bound in zip(pairs, bound, strict=True) if not is_bound]
        self._state = [(v, array) for v, array in pairs if not v.trainable and v.dtype.is_floating]

    def refresh(self) -> None:
        """Takes over a release."""
        for variable, array in self._copied:
            variable.assign(array)

    def deltas(self) -> dict[str, Array]:
        """By how much the step changed each floating-point variable that is not trainable."""
        return {wire_name(variable): np.subtract(variable.numpy(), array) for variable, array in self._state}
