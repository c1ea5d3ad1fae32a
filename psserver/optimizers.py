"""Update rules: TensorFlow's fused training kernels on one block.

A rule is the slots that it keeps beside a block and one function. `updates` counts updates before this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tensorflow as tf

from grpc_ps.client.shared.checkpoint_format import AVERAGE
from grpc_ps.protos import job_pb2

Tensor = Any
Variable = Any
Update = Callable[[Variable, Mapping[str, Variable], Tensor, float, int], None]

_ops = tf.raw_ops


@dataclass(frozen=True, slots=True)
class Rule:
    """An optimizer: first values of its slots by name (None: those of the block), and what it does to a block."""

    slots: Mapping[str, float | None]
    update: Update


def _value(variable: Variable) -> Tensor:
    return _ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


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


def rmsprop(settings: job_pb2.Settings) -> Rule:
    """a is a decayed mean of g²; v = m v + lr g / √(a + ε); w -= v (`ResourceApplyRMSProp`, Hinton 2012)."""
    scalars = _Scalars()

    def update(block: Variable, slots: Mapping[str, Variable], grad: Tensor, lr: float, updates: int) -> None:
        _ops.ResourceApplyRMSProp(
            var=block.handle,
            ms=slots["mean_square"].handle,
            mom=slots["velocity"].handle,
            lr=scalars.of(lr, block.dtype),
            rho=scalars.of(settings.rho, block.dtype),
            momentum=scalars.of(settings.momentum, block.dtype),
            epsilon=scalars.of(settings.epsilon, block.dtype),
            grad=grad,
        )

    return Rule({"mean_square": settings.initial_accumulator, "velocity": 0.0}, update)


def ftrl(settings: job_pb2.Settings) -> Rule:
    """Follows the regularised leader (`ResourceApplyFtrl` with power -1/2, McMahan et al. 2013).

    a' = a + g²; z += g - (√a' - √a) w / lr; w = (clip(z, -l1, l1) - z) / (√a' / lr + 2 l2). The value is made anew of
    the sums each time, so first values count only as far as they enter z. A rate of 0 (a schedule's end, the first
    step of a warm-up) divides by zero, and the kernel refuses it: then nothing changes.
    """
    scalars = _Scalars()

    def update(block: Variable, slots: Mapping[str, Variable], grad: Tensor, lr: float, updates: int) -> None:
        rate = scalars.of(lr, block.dtype)
        if not rate:
            return
        _ops.ResourceApplyFtrl(
            var=block.handle,
            accum=slots["accumulator"].handle,
            linear=slots["linear"].handle,
            grad=grad,
            lr=rate,
            l1=scalars.of(settings.l1, block.dtype),
            l2=scalars.of(settings.l2, block.dtype),
            lr_power=scalars.of(-0.5, block.dtype),
        )

    return Rule({"accumulator": settings.initial_accumulator, "linear": 0.0}, update)


def decayed(rule: Rule, weight_decay: float) -> Rule:
    """w -= lr·decay·w, then the rule: decoupled from the gradient, as Keras has it (Loshchilov and Hutter 2019)."""
    scalars = _Scalars()

    def update(block: Variable, slots: Mapping[str, Variable], grad: Tensor, lr: float, updates: int) -> None:
        # As a step along the value itself: 1 - lr·decay would lose half of float32's digits. The kernel writes to a
        # new buffer, for `value` holds the old one.
        value = _value(block)
        _ops.ResourceApplyGradientDescent(
            var=block.handle, alpha=scalars.of(lr * weight_decay, block.dtype), delta=value
        )
        rule.update(block, slots, grad, lr, updates)

    return Rule(rule.slots, update)


def averaged(rule: Rule, decay: float) -> Rule:
    """The rule, then a -= (1 - d)(a - w) with d = min(decay, (1 + t) / (10 + t)), t the updates including this one.

    As `tf.train.ExponentialMovingAverage` with the global step as `num_updates`, applied behind the update. So the
    first values, with which the average begins, are soon forgotten.
    """
    scalars = _Scalars()

    def update(block: Variable, slots: Mapping[str, Variable], grad: Tensor, lr: float, updates: int) -> None:
        rule.update(block, slots, grad, lr, updates)
        # In float64: in float32 1 - 0.9999 loses half of its digits.
        part = 1 - min(decay, (2 + updates) / (11 + updates))
        average = slots[AVERAGE]
        # As a step along the difference, which the kernel takes in place.
        difference = _ops.Sub(x=_value(average), y=_value(block))
        _ops.ResourceApplyGradientDescent(var=average.handle, alpha=scalars.of(part, block.dtype), delta=difference)

    return Rule({**rule.slots, AVERAGE: None}, update)


def rule_for(settings: job_pb2.Settings) -> Rule:
    """Returns the rule that the job's settings name, with weight decay and moving averages.

    "adamw" is adam with some decay by default.
    """
    rule = plain_rule(settings)
    rule = decayed(rule, settings.weight_decay) if settings.weight_decay else rule
    return averaged(rule, settings.moving_average) if settings.moving_average else rule


def plain_rule(settings: job_pb2.Settings) -> Rule:
    """Returns the same without weight decay and averages: what rows of tables are updated by."""
    rules = {
        "sgd": sgd,
        "momentum": momentum,
        "adagrad": adagrad,
        "adam": adam,
        "adamw": adam,
        "rmsprop": rmsprop,
        "ftrl": ftrl,
    }
    return rules[settings.optimizer](settings)
