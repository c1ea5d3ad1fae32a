"""Learning rates: equal to Keras's schedules of the same names, and errors that say what is wrong."""

from __future__ import annotations

import math
from typing import Any

import keras
import pytest

from grpc_ps.psserver.lead.schedule import schedule

schedules = keras.optimizers.schedules
RATE = 0.3

CASES: list[tuple[str, int, Any]] = [
    ("exponential:10:0.9", 0, schedules.ExponentialDecay(RATE, 10, 0.9)),
    ("staircase:7:0.5", 0, schedules.ExponentialDecay(RATE, 7, 0.5, staircase=True)),
    ("piecewise:5=0.2,20=0.05", 0, schedules.PiecewiseConstantDecay([5, 20], [RATE, 0.2, 0.05])),
    ("cosine:40", 0, schedules.CosineDecay(RATE, 40)),
    ("cosine:30:0.1", 0, schedules.CosineDecay(RATE, 30, alpha=0.1)),
    ("cosine:30:0.1", 12, schedules.CosineDecay(0.0, 30, alpha=0.1, warmup_target=RATE, warmup_steps=12)),
]


@pytest.mark.parametrize(("text", "warmup", "theirs"), CASES, ids=[f"{text}-{warmup}" for text, warmup, _ in CASES])
def test_rates_equal_those_of_keras_at_50_steps(text: str, warmup: int, theirs: Any) -> None:
    ours = schedule(text, RATE, warmup)
    # Keras computes in float32: near the end of a cosine the difference of two numbers near 1.
    expected = [float(theirs(step)) for step in range(50)]
    assert [ours(step) for step in range(50)] == pytest.approx(expected, rel=1e-6, abs=1e-6 * RATE)


def test_warm_up_rises_in_a_straight_line_and_the_schedule_begins_behind_it() -> None:
    rate = schedule("staircase:2:0.5", 1.0, warmup_steps=4)
    assert [rate(step) for step in range(9)] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 0.5, 0.5, 0.25]
    assert [schedule("constant", 0.1)(step) for step in (0, 10**6)] == [0.1, 0.1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linear", "must be one of constant, exponential"),
        ("constant:1", "must be constant"),
        ("exponential:10", "must be exponential:STEPS:RATE"),
        ("exponential:0:0.9", "'0' must be a whole number of steps, at least 1"),
        ("exponential:1.5:0.9", "'1.5' must be a whole number of steps"),
        ("exponential:10:-1", "'-1' must be above 0"),
        ("staircase:10:nan", "'nan' must be a finite number"),
        ("piecewise:10", "'10' must be STEP=RATE,STEP=RATE,..."),
        ("piecewise:20=0.1,10=0.2", "its steps must rise"),
        ("piecewise:10=0.1,10=0.2", "its steps must rise"),
        ("cosine", "must be cosine:STEPS or cosine:STEPS:ALPHA"),
        ("cosine:10:2", "ALPHA 2 must be from 0 to 1"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", "\\(").replace(".", "\\.")):
        schedule(text, RATE)


def test_a_rate_beyond_all_numbers_is_infinite_and_no_error() -> None:
    assert schedule("exponential:1:10", 1.0)(400) == math.inf
    assert schedule("staircase:1:10", 1.0)(400) == math.inf
    assert schedule("exponential:1:1e-300", 1.0)(400) == 0.0
