"""The stopwatch, by a clock that the test sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grpc_ps.client.shared.stopwatch import Stopwatch


class Clock:
    """Shows what the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def watch() -> tuple[Clock, Stopwatch]:
    clock = Clock()
    return clock, Stopwatch(("steps",), ("left", "right"), clock=clock)


def test_laps_divide_the_time_without_gaps() -> None:
    clock, one = watch()
    for now, phase in ((101.0, "left"), (103.5, "right"), (104.0, "left")):
        clock.now = now
        one.lap(phase)
    assert one.totals == {"steps": 0, "left": 1.5, "right": 2.5}


def test_what_is_skipped_is_charged_to_nothing() -> None:
    clock, one = watch()
    clock.now = 107.0
    one.skip()
    clock.now = 108.0
    one.lap("right")
    assert one.totals == {"steps": 0, "left": 0.0, "right": 1.0}


def test_pieces_of_work_are_charged_wherever_they_run_and_do_not_touch_laps() -> None:
    clock, one = watch()
    with one.during("left"):
        clock.now = 102.0

    def work() -> str:
        clock.now = 105.0
        return "done"

    assert one.timed("left", work) == "done"
    one.lap("right")
    assert one.totals == {"steps": 0, "left": 5.0, "right": 5.0}


def test_work_that_fails_is_charged_too() -> None:
    clock, one = watch()

    def work() -> None:
        clock.now = 104.0
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        one.timed("left", work)
    assert one.totals["left"] == 4.0


def test_making_items_is_charged_and_using_them_is_not() -> None:
    clock, one = watch()

    def items() -> Iterator[int]:
        for number in range(3):
            clock.now += 1.0
            yield number
        clock.now += 0.5

    seen = []
    for item in one.each("right", items()):
        clock.now += 10.0
        seen.append(item)
    assert seen == [0, 1, 2]
    assert one.totals == {"steps": 0, "left": 0.0, "right": 3.5}


def test_counts_and_a_new_beginning() -> None:
    clock, one = watch()
    one.count("steps")
    one.count("steps")
    clock.now = 109.0
    one.lap("left")
    assert one.totals == {"steps": 2, "left": 9.0, "right": 0.0}
    clock.now = 110.0
    one.clear()
    assert one.totals == {"steps": 0, "left": 0.0, "right": 0.0}
    clock.now = 111.0
    one.lap("left")
    assert one.totals["left"] == 1.0
