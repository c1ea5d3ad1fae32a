"""The learning rate of each update, as `Settings.schedule` in `job.proto` describes it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

Rate = Callable[[int], float]
"""From the updates applied before to the learning rate."""

FORMS = (
    "constant, exponential:STEPS:RATE, staircase:STEPS:RATE, piecewise:STEP=RATE,STEP=RATE,..., cosine:STEPS or "
    "cosine:STEPS:ALPHA"
)


def schedule(text: str, learning_rate: float, warmup_steps: int = 0) -> Rate:
    """Returns the rates that the text means, equal to those of Keras's schedules of the same names.

    For `warmup_steps` updates the rate rises in a straight line from 0; the schedule begins behind them.

    Raises:
        ValueError: the text has none of the `FORMS`; the message says what is wrong.
    """
    kind, *arguments = text.split(":")
    makers = {
        "constant": _constant,
        "exponential": _exponential,
        "staircase": _staircase,
        "piecewise": _piecewise,
        "cosine": _cosine,
    }
    if kind not in makers:
        raise ValueError(f"must be one of {FORMS}")
    rate = makers[kind](learning_rate, *arguments)
    if not warmup_steps:
        return rate
    return lambda step: learning_rate * step / warmup_steps if step < warmup_steps else rate(step - warmup_steps)


def _constant(first: float, *arguments: str) -> Rate:
    _count("constant", arguments, 0)
    return lambda step: first


def _exponential(first: float, *arguments: str) -> Rate:
    _count("exponential:STEPS:RATE", arguments, 2)
    steps, rate = _steps(arguments[0]), _positive(arguments[1])
    return lambda step: first * _power(rate, step / steps)


def _staircase(first: float, *arguments: str) -> Rate:
    _count("staircase:STEPS:RATE", arguments, 2)
    steps, rate = _steps(arguments[0]), _positive(arguments[1])
    return lambda step: first * _power(rate, step // steps)


def _power(rate: float, exponent: float) -> float:
    try:
        return math.pow(rate, exponent)
    except OverflowError:  # an update with it makes the parameters infinite, and that ends the job
        return math.inf


def _piecewise(first: float, *arguments: str) -> Rate:
    _count("piecewise:STEP=RATE,...", arguments, 1)
    pairs = [pair.partition("=") for pair in arguments[0].split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError(f"{arguments[0]!r} must be STEP=RATE,STEP=RATE,...")
    bounds = [_steps(step) for step, _, _ in pairs]
    rates = [first, *(_positive(rate) for _, _, rate in pairs)]
    if sorted(set(bounds)) != bounds:
        raise ValueError(f"{arguments[0]!r}: its steps must rise")
    return lambda step: rates[bisect_left(bounds, step)]


def _cosine(first: float, *arguments: str) -> Rate:
    if len(arguments) not in (1, 2):
        raise ValueError("must be cosine:STEPS or cosine:STEPS:ALPHA")
    steps = _steps(arguments[0])
    alpha = _number(arguments[1]) if len(arguments) == 2 else 0.0
    if not 0 <= alpha <= 1:
        raise ValueError(f"ALPHA {arguments[1]} must be from 0 to 1")
    return lambda step: first * (alpha + (1 - alpha) * 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0))))


def _count(form: str, arguments: tuple[str, ...], count: int) -> None:
    if len(arguments) != count:
        raise ValueError(f"must be {form}")


def _steps(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) < 2**63:
        raise ValueError(f"{text!r} must be a whole number of steps, at least 1")
    return int(text)


def _positive(text: str) -> float:
    number = _number(text)
    if number <= 0:
        raise ValueError(f"{text!r} must be above 0")
    return number


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text!r} must be a finite number")
    return number
