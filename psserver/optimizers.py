"""Update rules: TensorFlow's fused training kernels on one block.

A rule is the slots that it keeps beside a block and one function. `updates` counts updates before this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tensorflow as tf

from grpc_ps.protos import job_pb2

Tensor = Any
Variable = Any
Update = Callable[[Variable, Mapping[str, Variable], Tensor, float, int], None]

_ops = tf.raw_ops


@dataclass(frozen=True, slots=True)
class Rule:
    """An optimizer: first values of its slots by name, and what it does to a block."""

    slots: Mapping[str, float]
    update: Update


class _Scalars:
    """Makes each scalar operand once for all blocks of its type: that takes as long as updating a small block."""

    def __init__(self) -> None:
        self.of = lru_cache(maxsize=64)(tf.constant)
        self.power = lru_cache(maxsize=64)(self._power)

    def _power(self, base: float, exponent: int, dtype: Any) -> Tensor:
        """In the block's own precision, as TensorFlow's optimizers do: 1 - 0.999 loses half of float32's digits."""
        return tf.pow(self.of(base, dtype), self.of(float(exponent), dtype))


def sgd(settings: job_pb2.Settings) -> Rule:
    """w -= lr g (`ResourceApplyGradientDescent`)."""
    scalars = _Scalars()

    def update(block: Variable, slots: Mapping[str, Variable], grad: Tensor, lr: float, updates: int) -> None:
        _ops.ResourceApplyGradientDescent(var=block.handle, alpha=scalars.of(lr, block.dtype), delta=grad)

    return Rule({}, update)


def momentum(settings: job_pb2.Settings) -> Rule:
    """v = m v + g; w -= lr v, or w -= lr (g + m v) with nesterov (`ResourceApplyMomentum`)."""
    scalars = _Scalars()

    def update(block: Variable, slots: Mapping[str, Variable], grad: Tensor, lr: float, updates: int) -> None:
        _ops.ResourceApplyMomentum(
            var=block.handle,
            accum=slots["velocity"].handle,
            lr=scalars.of(lr, block.dtype),
            grad=grad,
            momentum=scalars.of(settings.momentum, block.dtype),
            use_nesterov=settings.nesterov,
        )

    return Rule({"velocity": 0.0}, update)


def adagrad(settings: job_pb2.Settings) -> Rule:
    """a += g²; w -= lr g / √a (`ResourceApplyAdagrad`)."""
    scalars = _Scalars()

    def update(block: Variable, slots: Mapping[str, Variable], grad: Tensor, lr: float, updates: int) -> None:
        accumulator = slots["accumulator"].handle
        _ops.ResourceApplyAdagrad(var=block.handle, accum=accumulator, lr=scalars.of(lr, block.dtype), grad=grad)

    return Rule({"accumulator": settings.initial_accumulator}, update)


def adam(settings: job_pb2.Settings) -> Rule:
    """m and v are decayed means of g and g²; w -= lr m̂ / (√v̂ + ε) (`ResourceApplyAdam`, Kingma and Ba 2015).

    The powers of the betas follow from the number of updates, so they are no slots.
    """
    scalars = _Scalars()

    def update(block: Variable, slots: Mapping[str, Variable], grad: Tensor, lr: float, updates: int) -> None:
        _ops.ResourceApplyAdam(
            var=block.handle,
            m=slots["m"].handle,
            v=slots["v"].handle,
            beta1_power=scalars.power(settings.beta_1, updates + 1, block.dtype),
            beta2_power=scalars.power(settings.beta_2, updates + 1, block.dtype),
            lr=scalars.of(lr, block.dtype),
            beta1=scalars.of(settings.beta_1, block.dtype),
            beta2=scalars.of(settings.beta_2, block.dtype),
            epsilon=scalars.of(settings.epsilon, block.dtype),
            grad=grad,
        )

    return Rule({"m": 0.0, "v": 0.0}, update)


def rule_for(settings: job_pb2.Settings) -> Rule:
    """Returns the rule that the job's settings name."""
    return {"sgd": sgd, "momentum": momentum, "adagrad": adagrad, "adam": adam}[settings.optimizer](settings)
