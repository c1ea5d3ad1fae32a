"""Update rules: TensorFlow's fused training kernels on one block.

A rule is the slots that it keeps beside a block and one function. `updates` counts updates before this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


def _scalar(like: Variable, value: float) -> Tensor:
    return tf.constant(value, like.dtype)


def _power(like: Variable, base: float, exponent: int) -> Tensor:
    """In the block's own precision, as TensorFlow's optimizers do: 1 - 0.999 loses three of float32's seven digits."""
    return tf.pow(_scalar(like, base), _scalar(like, float(exponent)))


def sgd(settings: job_pb2.Settings) -> Rule:
    """w -= lr g (`ResourceApplyGradientDescent`)."""

    def update(block: Variable, slots: Mapping[str, Variable], grad: Tensor, lr: float, updates: int) -> None:
        _ops.ResourceApplyGradientDescent(var=block.handle, alpha=_scalar(block, lr), delta=grad)

    return Rule({}, update)


def momentum(settings: job_pb2.Settings) -> Rule:
    """v = m v + g; w -= lr v, or w -= lr (g + m v) with nesterov (`ResourceApplyMomentum`)."""

    def update(block: Variable, slots: Mapping[str, Variable], grad: Tensor, lr: float, updates: int) -> None:
        _ops.ResourceApplyMomentum(
            var=block.handle,
            accum=slots["velocity"].handle,
            lr=_scalar(block, lr),
            grad=grad,
            momentum=_scalar(block, settings.momentum),
            use_nesterov=settings.nesterov,
        )

    return Rule({"velocity": 0.0}, update)


def adagrad(settings: job_pb2.Settings) -> Rule:
    """a += g²; w -= lr g / √a (`ResourceApplyAdagrad`)."""

    def update(block: Variable, slots: Mapping[str, Variable], grad: Tensor, lr: float, updates: int) -> None:
        accumulator = slots["accumulator"].handle
        _ops.ResourceApplyAdagrad(var=block.handle, accum=accumulator, lr=_scalar(block, lr), grad=grad)

    return Rule({"accumulator": settings.initial_accumulator}, update)


def adam(settings: job_pb2.Settings) -> Rule:
    """m and v are decayed means of g and g²; w -= lr m̂ / (√v̂ + ε) (`ResourceApplyAdam`, Kingma and Ba 2015).

    The powers of the betas follow from the number of updates, so they are no slots.
    """

    def update(block: Variable, slots: Mapping[str, Variable], grad: Tensor, lr: float, updates: int) -> None:
        _ops.ResourceApplyAdam(
            var=block.handle,
            m=slots["m"].handle,
            v=slots["v"].handle,
            beta1_power=_power(block, settings.beta_1, updates + 1),
            beta2_power=_power(block, settings.beta_2, updates + 1),
            lr=_scalar(block, lr),
            beta1=_scalar(block, settings.beta_1),
            beta2=_scalar(block, settings.beta_2),
            epsilon=_scalar(block, settings.epsilon),
            grad=grad,
        )

    return Rule({"m": 0.0, "v": 0.0}, update)


def rule_for(settings: job_pb2.Settings) -> Rule:
    """Returns the rule that the job's settings name."""
    return {"sgd": sgd, "momentum": momentum, "adagrad": adagrad, "adam": adam}[settings.optimizer](settings)
